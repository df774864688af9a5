//! SyncWrites in flight when another node takes their vBucket over.

use super::*;
use crate::tools::Steps;
use kedge_bucket::{Cookie, Mutated, NodeName, Outcome, Topology, VbRole, VbState, Write};
use kedge_disk::SimDisk;
use kedge_types::{Durability, DurabilityLevel};

const VB: VbId = VbId(1);

/// An active vBucket that node b takes over from node a, which is this one.
struct Handover {
    open: Open,
    steps: Steps,
    names: Vec<String>,
}

impl Handover {
    fn new(seed: u64) -> Self {
        let mut site = sim(&SimDisk::new(seed));
        site.topology = None;
        let (open, steps) = site.open_with_manual_tasks();
        let chain = |names: [&str; 2]| names.map(NodeName::new).to_vec();
        let role = VbRole {
            topology: Some(Topology::new(vec![chain(["a", "b"]), chain(["b", "a"])]).unwrap()),
            ..VbState::Active.into()
        };
        open.bucket.states().set_vbucket(VB, role).unwrap();
        let names = names_in(VB, 4);
        Self { open, steps, names }
    }

    /// Begins a SyncWrite of the document with this number.
    fn prepare(&self, document: usize, cookie: u64) -> Result<Outcome<Mutated>, Status> {
        let key = key(&self.names[document]);
        let write = Write {
            durability: Some(Durability {
                level: DurabilityLevel::Majority,
                timeout_ms: Some(1_000),
            }),
            cookie: Cookie(cookie),
            ..write(&key)
        };
        self.open.store(&write, b"durable")
    }

    fn request(&self) -> StreamRequest {
        StreamRequest {
            flags: StreamFlags::TAKEOVER,
            consumer: NodeName::new("b"),
            ..request(&self.open, VB, 0)
        }
    }

    fn state(&self) -> VbState {
        self.open.bucket.vbucket_state(VB).unwrap()
    }
}

/// Bug: clients of SyncWrites got an ambiguous status when the vBucket moved.
#[test]
fn takeover_waits_for_the_sync_writes_in_flight_and_begins_no_others() {
    let it = Handover::new(1);
    assert_eq!(it.prepare(0, 1), Ok(Outcome::Parked));
    let line = TestConnection::new(&it.open);
    let mut client = line.try_open(&it.request()).unwrap();
    client.drain();
    assert_eq!(client.copy.states, [VbState::Pending]);
    assert_eq!(
        it.prepare(1, 2),
        Ok(Outcome::Parked),
        "it goes on until the answer"
    );
    client.stream.state_answered();
    it.steps.run();
    client.drain();
    assert_eq!(it.state(), VbState::Active);
    assert_eq!(it.prepare(2, 3), Err(Status::TemporaryFailure));
    it.open.set(&it.names[3], b"not durable").unwrap();
    let node = NodeName::new("b").unwrap();
    let dcp = it.open.bucket.dcp();
    dcp.acknowledge(&node, &[(VB, Seqno(1))]);
    client.drain();
    it.steps.run();
    assert_eq!(it.state(), VbState::Active, "there is another one");
    dcp.acknowledge(&node, &[(VB, Seqno(2))]);
    client.drain();
    it.steps.run();
    assert_eq!(it.state(), VbState::Dead);
    client.drain();
    assert!(it.open.sink.wait(1).is_ok() && it.open.sink.wait(2).is_ok());
    assert_eq!(client.copy.states, [VbState::Pending, VbState::Active]);
    assert_eq!(
        (client.copy.prepares.len(), client.copy.documents.len()),
        (0, 3)
    );
    it.open.bucket.shutdown();
}

/// Nobody acknowledges. The clients get an ambiguous status after their own timeout, and the takeover goes on.
#[test]
fn takeover_goes_on_when_the_sync_writes_in_flight_have_timed_out() {
    let it = Handover::new(2);
    assert_eq!(it.prepare(0, 1), Ok(Outcome::Parked));
    let line = TestConnection::new(&it.open);
    let mut client = line.try_open(&it.request()).unwrap();
    client.drain();
    client.stream.state_answered();
    client.drain();
    line.ear.take();
    it.steps.pass(SEC * 2);
    assert_eq!(it.open.sink.wait(1), Err(Status::SyncWriteAmbiguous));
    assert_eq!(line.ear.take(), [VB], "the stream hears of it");
    client.drain();
    it.steps.run();
    assert_eq!(it.state(), VbState::Dead);
    it.open.bucket.shutdown();
}

#[test]
fn sync_writes_begin_again_when_the_takeover_is_given_up() {
    let it = Handover::new(3);
    assert_eq!(it.prepare(0, 1), Ok(Outcome::Parked));
    let line = TestConnection::new(&it.open);
    let mut client = line.try_open(&it.request()).unwrap();
    client.drain();
    client.stream.state_answered();
    assert_eq!(it.prepare(1, 2), Err(Status::TemporaryFailure));
    drop(client);
    assert_eq!(it.prepare(1, 2), Ok(Outcome::Parked));
    assert_eq!(it.state(), VbState::Active);
    it.open.bucket.shutdown();
}
