//! The end of a connection that receives another node's changes.

use crate::serving::{Closed, features};
use crate::trace::note;
use kedge_bucket::{ApplyError, Bucket, VbState};
use kedge_cluster::MoveStart;
use kedge_protocol::binary::Feature;
use kedge_protocol::binary::commands::dcp::{ParsePeer, StreamFlags, parse_peer};
use kedge_replication::{Consumer, ConsumerConfig, ConsumerEvent};
use kedge_types::{Seqno, Status, VbId};
use kedge_vbucket::{NodeName, Received};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

const FRAME_BYTES_MAX: usize = 1 << 20;
const BUFFER_BYTES: u32 = 16 << 10;
/// The pause between two attempts at a stream.
const RETRY_NS: u64 = 20_000_000;

/// The outcomes of rollbacks, and of state changes in takeovers.
#[derive(Default)]
struct FinishedSteps {
    rolled: Vec<VbId>,
    /// The changed states, with the number of the attempt.
    set: Vec<(VbId, u64, VbState, Result<(), Status>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FollowState {
    /// The stream is requested at this time.
    Wanted {
        at_ns: u64,
    },
    /// The stream is open; carries the number of the attempt.
    Streaming(u64),
    RollingBack,
    /// Everything was received, and the other end has given up the vBucket.
    TakenOver,
}

/// The receiving end.
pub(crate) struct ReceivingEnd {
    bucket: Arc<Bucket>,
    node: NodeName,
    peer: NodeName,
    consumer: Consumer,
    /// The followed vBuckets; those that are taken over have the starts of their moves.
    vbuckets: BTreeMap<VbId, (FollowState, Option<MoveStart>)>,
    attempts: u64,
    /// The current attempts.
    asks: Arc<Mutex<BTreeMap<VbId, u64>>>,
    input: Vec<u8>,
    /// A change for which there was no memory, and the bytes of its frame.
    held: Option<(VbId, Received, usize)>,
    done: Arc<Mutex<FinishedSteps>>,
    /// vBuckets that were rolled back: their acknowledged data is gone.
    pub(crate) went_back: Vec<VbId>,
    /// vBuckets that were taken over, with the starts of their moves.
    pub(crate) taken: Vec<(VbId, MoveStart)>,
}

impl ReceivingEnd {
    pub(crate) fn new(
        bucket: &Arc<Bucket>,
        (node, peer): (NodeName, NodeName),
        epoch: i64,
        now_ns: u64,
        out: &mut Vec<u8>,
    ) -> Self {
        note!(node, "connects to {peer}");
        let config = ConsumerConfig {
            name: format!("replication:{peer}->{node}:sim"),
            node: node.clone(),
            buffer_bytes: BUFFER_BYTES,
            noop_interval_secs: 1,
            collections: features().contains(Feature::Collections),
            map_epoch: Some(epoch),
        };
        Self {
            bucket: Arc::clone(bucket),
            node,
            peer,
            consumer: Consumer::open(&config, now_ns, out),
            vbuckets: BTreeMap::new(),
            input: Vec::new(),
            held: None,
            attempts: 0,
            asks: Arc::default(),
            done: Arc::default(),
            went_back: Vec::new(),
            taken: Vec::new(),
        }
    }

    /// Sets the vBuckets to follow.
    pub(crate) fn set_vbuckets(
        &mut self,
        wanted: &BTreeMap<VbId, Option<MoveStart>>,
        out: &mut Vec<u8>,
    ) {
        let followed = self.vbuckets.iter();
        let is_other =
            |(vb, takeover): &(VbId, Option<MoveStart>)| wanted.get(vb) != Some(takeover);
        let gone = followed.map(|(vb, (_, takeover))| (*vb, *takeover));
        let gone: Vec<VbId> = gone.filter(is_other).map(|(vb, _)| vb).collect();
        for vb in gone {
            self.vbuckets.remove(&vb);
            self.stop(vb, out);
        }
        for (vb, takeover) in wanted {
            let standing = FollowState::Wanted { at_ns: 0 };
            self.vbuckets.entry(*vb).or_insert((standing, *takeover));
        }
    }

    fn stop(&mut self, vb: VbId, out: &mut Vec<u8>) {
        self.consumer.close_stream(vb, out);
        self.bucket.dcp().end_passive_stream(vb);
        self.asks.lock().remove(&vb);
        self.held.take_if(|(held, _, _)| *held == vb);
    }

    fn try_again(&mut self, now_ns: u64, vb: VbId) {
        if let Some((standing, _)) = self.vbuckets.get_mut(&vb) {
            *standing = FollowState::Wanted {
                at_ns: now_ns + RETRY_NS,
            };
        }
    }

    /// Processes received bytes.
    pub(crate) fn on_bytes(
        &mut self,
        now_ns: u64,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Closed> {
        self.input.extend(bytes);
        self.read(now_ns, out)
    }

    fn read(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Result<(), Closed> {
        let input = std::mem::take(&mut self.input);
        let mut at = 0;
        while self.held.is_none() {
            match parse_peer(&input[at..], FRAME_BYTES_MAX) {
                ParsePeer::Incomplete { .. } => break,
                ParsePeer::Fatal(_) => return Err(Closed),
                ParsePeer::Frame { frame, consumed } => {
                    let step = self.consumer.on_frame(now_ns, &frame, out);
                    let step = step.map_err(|_| Closed)?;
                    self.on_event(now_ns, step.event, step.bytes, out);
                    at += consumed;
                }
            }
        }
        self.input = input[at..].to_vec();
        Ok(())
    }

    fn on_event(&mut self, now_ns: u64, event: ConsumerEvent, bytes: usize, out: &mut Vec<u8>) {
        let done = match event {
            ConsumerEvent::Nothing => Ok(()),
            ConsumerEvent::Begins { vb, from, failover } => {
                let (node, peer, branch) = (&self.node, &self.peer, failover.entries().first());
                note!(
                    node,
                    "vBucket {vb}: stream from {peer} begins, branch {branch:?}"
                );
                let begun = self.bucket.dcp().begin_passive_stream(vb, &from, failover);
                begun.map_err(|error| (vb, error))
            }
            ConsumerEvent::Rollback { vb, to } => {
                note!(
                    self.node,
                    "vBucket {vb}: goes back to {to}, says {}",
                    self.peer
                );
                self.roll_back(vb, to);
                Ok(())
            }
            ConsumerEvent::Refused { vb, status } => {
                note!(
                    self.node,
                    "vBucket {vb}: {} refuses a stream: {status:#x}",
                    self.peer
                );
                self.try_again(now_ns, vb);
                Ok(())
            }
            ConsumerEvent::Snapshot { vb, snapshot } => {
                let (kind, start, end) = (snapshot.kind, snapshot.start, snapshot.end);
                note!(
                    self.node,
                    "vBucket {vb}: {kind:?} snapshot {start} to {end}"
                );
                let begun = self.bucket.dcp().receive_snapshot(vb, snapshot);
                begun.map_err(|error| (vb, error))
            }
            ConsumerEvent::Received { vb, received } => {
                return self.take(now_ns, vb, received, bytes, out);
            }
            ConsumerEvent::SetState { vb, state } => {
                note!(
                    self.node,
                    "vBucket {vb}: is to be {state:?}, says {}",
                    self.peer
                );
                self.begin_state(vb, state);
                Ok(())
            }
            ConsumerEvent::Ended { vb, reason } => {
                note!(
                    self.node,
                    "vBucket {vb}: stream from {} ends: {reason:?}",
                    self.peer
                );
                self.bucket.dcp().end_passive_stream(vb);
                let standing = self.vbuckets.get(&vb).map(|(standing, _)| *standing);
                if standing != Some(FollowState::TakenOver) {
                    self.try_again(now_ns, vb);
                }
                Ok(())
            }
        };
        self.consumer.consumed(now_ns, bytes, out);
        if let Err((vb, error)) = done {
            self.refuse(now_ns, vb, error, out);
        }
    }

    fn refuse(&mut self, now_ns: u64, vb: VbId, error: ApplyError, out: &mut Vec<u8>) {
        note!(
            self.node,
            "vBucket {vb}: takes no more of {}: {error:?}",
            self.peer
        );
        self.stop(vb, out);
        self.try_again(now_ns, vb);
    }

    fn take(&mut self, now_ns: u64, vb: VbId, received: Received, bytes: usize, out: &mut Vec<u8>) {
        let mut changes = vec![received];
        match self.bucket.dcp().receive(vb, &mut changes) {
            Ok(outcome) => {
                if let Some(ack) = outcome.ack {
                    self.consumer.acknowledge(vb, ack, out);
                }
                if outcome.deferred
                    && let Some(received) = changes.pop()
                {
                    self.held = Some((vb, received, bytes));
                    return;
                }
            }
            Err(error) => self.refuse(now_ns, vb, error, out),
        }
        self.consumer.consumed(now_ns, bytes, out);
    }

    fn roll_back(&mut self, vb: VbId, to: Seqno) {
        if let Some((standing, _)) = self.vbuckets.get_mut(&vb) {
            *standing = FollowState::RollingBack;
        }
        self.went_back.push(vb);
        let all = Arc::clone(&self.done);
        let node = self.node.clone();
        let done = move |result| {
            note!(node, "vBucket {vb}: rolled back: {result:?}");
            all.lock().rolled.push(vb);
        };
        self.bucket
            .persistence()
            .rollbacks()
            .submit(vb, to, self.still(vb), done);
    }

    /// Returns a check that the last request is still the current one.
    fn still(&self, vb: VbId) -> impl Fn() -> bool + Send + 'static {
        let asks = Arc::clone(&self.asks);
        let asked = asks.lock().get(&vb).copied();
        move || asked.is_some() && asks.lock().get(&vb) == asked.as_ref()
    }

    /// Begins a step of a takeover: all received data must be on disk first.
    fn begin_state(&mut self, vb: VbId, state: VbState) {
        let Some((FollowState::Streaming(asked), _)) = self.vbuckets.get(&vb).copied() else {
            return;
        };
        let all = Arc::clone(&self.done);
        let done = move |result| all.lock().set.push((vb, asked, state, result));
        self.bucket
            .states()
            .begin_takeover_step(vb, self.still(vb), done);
    }

    fn end_states(&mut self, out: &mut Vec<u8>) {
        let set = std::mem::take(&mut self.done.lock().set);
        for (vb, asked, state, result) in set {
            let Some((standing, takeover)) = self.vbuckets.get_mut(&vb) else {
                continue;
            };
            if *standing != FollowState::Streaming(asked) {
                continue;
            }
            if result.is_ok() && state == VbState::Active {
                *standing = FollowState::TakenOver;
                self.taken.extend(takeover.map(|start| (vb, start)));
            }
            note!(
                self.node,
                "vBucket {vb}: is {state:?} for a takeover: {result:?}"
            );
            let status = result.err().unwrap_or(Status::Success);
            self.consumer.state_is_set(vb, status, out);
        }
    }

    /// Acknowledges prepares that are on disk.
    pub(crate) fn acknowledge(&mut self, vb: VbId, prepared: Seqno, out: &mut Vec<u8>) {
        self.consumer.acknowledge(vb, prepared, out);
    }

    /// Executes due work.
    pub(crate) fn work(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Result<(), Closed> {
        if let Some((vb, received, bytes)) = self.held.take() {
            self.take(now_ns, vb, received, bytes, out);
            self.read(now_ns, out)?;
        }
        self.bucket.dcp().flush_received(false);
        self.end_states(out);
        for vb in std::mem::take(&mut self.done.lock().rolled) {
            if let Some((standing @ FollowState::RollingBack, _)) = self.vbuckets.get_mut(&vb) {
                *standing = FollowState::Wanted { at_ns: now_ns };
            }
        }
        for (vb, (standing, takeover)) in &mut self.vbuckets {
            let FollowState::Wanted { at_ns } = *standing else {
                continue;
            };
            if at_ns > now_ns {
                continue;
            }
            match self.bucket.dcp().resume_point(*vb) {
                Ok(from) => {
                    note!(
                        self.node,
                        "vBucket {vb}: asks {} for a stream, {from:?}",
                        self.peer
                    );
                    let flags = if takeover.is_some() {
                        StreamFlags::TAKEOVER
                    } else {
                        StreamFlags::ACTIVE_ONLY
                    };
                    self.consumer.add_stream(*vb, &from, flags, out);
                    self.attempts += 1;
                    *standing = FollowState::Streaming(self.attempts);
                    self.asks.lock().insert(*vb, self.attempts);
                }
                Err(_) => {
                    *standing = FollowState::Wanted {
                        at_ns: now_ns + RETRY_NS,
                    };
                }
            }
        }
        self.consumer.on_time(now_ns, out).map_err(|_| Closed)
    }

    /// Handles the end of the connection.
    pub(crate) fn end(&self) {
        note!(self.node, "connection to {} ends", self.peer);
        self.asks.lock().clear();
        for vb in self.vbuckets.keys() {
            self.bucket.dcp().end_passive_stream(*vb);
        }
    }
}
