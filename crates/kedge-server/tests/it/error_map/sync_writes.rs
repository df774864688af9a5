//! Statuses of SyncWrites, provoked on a node with a replication chain of missing nodes.

use kedge_protocol::binary::Opcode;
use kedge_types::{Datatype, DurabilityLevel, Status};

use super::{Row, provoked};
use crate::client::{Client, Frame, SDK_FEATURES};
use crate::evicted::until;
use crate::server::{Kedge, PASSWORD};

pub(super) const ROWS: &[Row] = &[
    provoked(
        Status::DurabilityImpossible,
        "a SyncWrite whose chain lacks a majority",
        impossible,
    ),
    provoked(
        Status::SyncWriteInProgress,
        "SET while a SyncWrite of the key is open",
        in_progress,
    ),
    provoked(
        Status::SyncWriteAmbiguous,
        "a SyncWrite whose vBucket becomes a replica",
        ambiguous,
    ),
    provoked(
        Status::SyncWriteReCommitInProgress,
        "GET of a key whose SyncWrite was open when its vBucket became active",
        re_commit,
    ),
];

const KEY: &str = "k";

struct Place {
    kedge: Kedge,
    root: Client,
    writer: Client,
}

impl Place {
    /// A server whose vBuckets have this chain.
    fn new(chain: &str) -> Self {
        let kedge = Kedge::start();
        let mut root = kedge.connect();
        root.hello(SDK_FEATURES);
        root.log_in("root", PASSWORD);
        root.select("default");
        let writer = kedge.client();
        let mut place = Self {
            kedge,
            root,
            writer,
        };
        place.set_state(1, chain);
        place
    }

    fn set_state(&mut self, state: u8, chain: &str) {
        let frame = self.root.request(Opcode::SetVbucket);
        let frame = Frame {
            key: Vec::new(),
            ..frame.key(KEY)
        }
        .extras(&[state]);
        let frame = match chain {
            "" => frame,
            _ => frame
                .value(format!("{{\"topology\":[{chain}]}}").as_bytes())
                .datatype(Datatype::JSON),
        };
        self.root.call(&frame).ok();
    }

    fn durable_set(&mut self) -> Frame {
        let set = self.writer.request(Opcode::Set).store(KEY, b"v");
        set.durable(DurabilityLevel::Majority)
    }

    /// Leaves a SyncWrite without an acknowledgement. Returns the status of another write of the key.
    fn leave_open(&mut self) -> Status {
        let set = self.durable_set();
        self.writer.send(&set.bytes());
        let mut other = self.kedge.client();
        let mut status = Status::Success;
        until("it is prepared", || {
            status = other.set(KEY, b"w").status;
            status != Status::Success
        });
        status
    }
}

fn impossible() -> Status {
    let mut place = Place::new(r#"["n_0",null]"#);
    let set = place.durable_set();
    place.writer.call(&set).status
}

fn in_progress() -> Status {
    let mut place = Place::new(r#"["n_0","n_1"]"#);
    place.leave_open()
}

fn ambiguous() -> Status {
    let mut place = Place::new(r#"["n_0","n_1"]"#);
    place.leave_open();
    place.set_state(2, "");
    place.writer.reply().status
}

fn re_commit() -> Status {
    let mut place = Place::new(r#"["n_0","n_1"]"#);
    place.leave_open();
    place.set_state(2, "");
    assert_eq!(place.writer.reply().status, Status::SyncWriteAmbiguous);
    place.set_state(1, r#"["n_0","n_1"]"#);
    place.writer.get(KEY).status
}
