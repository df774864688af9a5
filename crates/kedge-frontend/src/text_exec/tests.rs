//! Tests of commands that wait for a document from the disk. The test parks a step as the command does, and completes
//! it as a bucket would.

use crate::session::TextStep;
use kedge_bucket::{Completion, Meta, Mutated};
use kedge_protocol::binary::Features;
use kedge_types::{Cas, Datatype, Expiry, RevSeqno, Seqno, Status, VbUuid};

use super::{TextCommandContext, TextOutcome};
use crate::inbox::Port;
use crate::session::Halt;
use crate::session::tests::{Rig, item, mutation, read, turn};

const CAS: Cas = Cas(0x1234);
const MUTATED: Mutated = Mutated {
    cas: CAS,
    uuid: VbUuid(7),
    seqno: Seqno(9),
};

fn ok() -> Completion {
    mutation(Ok(MUTATED), Some(item("k", b"v")))
}

fn failed(status: Status) -> Completion {
    mutation(Err(status), None)
}

const BUSY: &str = "SERVER_ERROR temporary failure\r\n";

fn busy() -> Completion {
    failed(Status::TemporaryFailure)
}

fn missed() -> Completion {
    let result = Err(Status::KeyNotFound);
    Completion::Read { result }
}

fn counter(number: u64) -> Completion {
    let result = Ok((MUTATED, number));
    Completion::Counter { result }
}

fn meta(cas: u64, deleted: bool) -> Completion {
    let result = Ok(Meta {
        cas: Cas(cas),
        flags: 5,
        expiry: Expiry(0),
        rev_seqno: RevSeqno(1),
        seqno: Seqno(1),
        datatype: Datatype::RAW,
        deleted,
    });
    Completion::Meta { result }
}

impl Rig {
    fn park_text(&mut self, bytes: &[u8], step: TextStep) {
        let mut turn = turn(&self.shared, &mut self.flush_requests);
        let start_ns = turn.now.mono_ns;
        let mut exec = TextCommandContext {
            session: &mut self.session,
            turn: &mut turn,
            out: &mut self.out,
            bytes,
            start_ns,
        };
        assert_eq!(exec.park(step), TextOutcome::Parked);
    }
}

/// Checks the reply when `step` of a command is completed, on a bucket with the documents `there` (5, "1") and `c` (0,
/// "9").
#[track_caller]
fn check(command: &str, step: TextStep, completion: Completion, expected: &str) {
    let mut rig = Rig::new(Port::Memcached, Features::NONE);
    rig.give(b"set there 5 0 1 noreply\r\n1\r\nset c 0 0 1 noreply\r\n9\r\n");
    rig.park_text(command.as_bytes(), step);
    assert_eq!(rig.give(b"mn\r\n"), Halt::Parked, "nothing overtakes");
    rig.complete(0, completion);
    rig.give(b"");
    let replies = String::from_utf8(rig.fresh()).unwrap();
    assert_eq!(replies, format!("{expected}MN\r\n"), "{command:?}");
    assert_eq!(rig.session.in_flight(), 0);
}

#[test]
fn classic_commands() {
    use TextStep::{Main, ReadMeta};
    let check = |command, step, completion, expected| check(command, step, completion, expected);
    check("append k 0 0 1\r\n.\r\n", Main, ok(), "STORED\r\n");
    check("prepend k 0 0 1 noreply\r\n.\r\n", Main, ok(), "");
    let none = || failed(Status::NotStored);
    check("append k 0 0 1\r\n.\r\n", Main, none(), "NOT_STORED\r\n");
    check("append k 0 0 1 noreply\r\n.\r\n", Main, none(), "");
    check("cas k 0 0 1 7\r\n.\r\n", Main, ok(), "STORED\r\n");
    let exists = failed(Status::KeyExists);
    check("cas k 0 0 1 7\r\n.\r\n", Main, exists, "EXISTS\r\n");
    check(
        "cas k 0 0 1 0\r\n.\r\n",
        ReadMeta,
        meta(7, false),
        "EXISTS\r\n",
    );
    let gone = meta(7, true);
    check("cas k 0 0 1 0\r\n.\r\n", ReadMeta, gone, "NOT_FOUND\r\n");
    let nothing = failed(Status::KeyNotFound);
    check("cas k 0 0 1 0\r\n.\r\n", ReadMeta, nothing, "NOT_FOUND\r\n");
    check("delete k\r\n", Main, ok(), "DELETED\r\n");
    check("delete k noreply\r\n", Main, ok(), "");
    let nothing = failed(Status::KeyNotFound);
    check("delete k\r\n", Main, nothing, "NOT_FOUND\r\n");
    check("touch k 100\r\n", Main, ok(), "TOUCHED\r\n");
    check("touch k 100 noreply\r\n", Main, ok(), "");
    check("incr k 1\r\n", Main, counter(42), "42\r\n");
    check("decr k 1 noreply\r\n", Main, counter(42), "");
    let wrong = failed(Status::DeltaBadValue);
    check(
        "incr k 1\r\n",
        Main,
        wrong,
        "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
    );
    check("touch k 100\r\n", Main, busy(), BUSY);
}

#[test]
fn meta_commands() {
    use TextStep::{Main, ReadCounterMeta, ReadMeta, SetExpiry, Vivify};
    let check = |command, step, completion, expected| check(command, step, completion, expected);
    check("mg k v f\r\n", Main, read("k", b"v"), "VA 1 f5\r\nv\r\n");
    check("mg k v q\r\n", Main, missed(), "");
    check("mg k v\r\n", Main, missed(), "EN\r\n");
    check("mg k T0 v f\r\n", Main, ok(), "VA 1 f5\r\nv\r\n");
    // After a miss the document is created, at once or when the creation is completed.
    check("mg k N30 v\r\n", Main, missed(), "VA 0 W\r\n\r\n");
    check("mg there N30 v\r\n", Main, missed(), "EN\r\n");
    check("mg k N30 v\r\n", Vivify, ok(), "VA 0 W\r\n\r\n");
    let exists = failed(Status::KeyExists);
    check("mg k N30 v\r\n", Vivify, exists, "EN\r\n");
    check("ms k 1 MA\r\n.\r\n", Main, ok(), "HD\r\n");
    check("ms k 1 MA q\r\n.\r\n", Main, ok(), "");
    let none = || failed(Status::NotStored);
    check("ms k 1 MA\r\n.\r\n", Main, none(), "NS\r\n");
    check("ms k 1 MA N0 s\r\n.\r\n", Main, none(), "HD s1\r\n");
    check("ms there 1 MA N0\r\n.\r\n", Main, none(), "EX\r\n");
    check("ms k 1 MA N0\r\n.\r\n", Vivify, ok(), "HD\r\n");
    // The CAS of the document decides, before a write.
    check("ms k 1 C0\r\n.\r\n", ReadMeta, meta(7, false), "EX\r\n");
    check("ms k 1 C0\r\n.\r\n", ReadMeta, meta(7, true), "NF\r\n");
    check("ms k 1 I C9\r\n.\r\n", ReadMeta, meta(7, false), "EX\r\n");
    check("ms k 1 I C5\r\n.\r\n", ReadMeta, meta(7, false), "NF\r\n");
    check("md k\r\n", Main, ok(), "HD\r\n");
    check("md k q\r\n", Main, ok(), "");
    check("md k x C0\r\n", ReadMeta, read("k", b"v"), "EX\r\n");
    check("md k x\r\n", ReadMeta, missed(), "NF\r\n");
    check("md k x\r\n", ReadMeta, read("k", b"v"), "NF\r\n");
    check("ma k v\r\n", Main, counter(42), "VA 2\r\n42\r\n");
    check("ma k q\r\n", Main, counter(42), "");
    check("ma k\r\n", Main, failed(Status::KeyNotFound), "NF\r\n");
    check("ma k v t\r\n", Main, counter(42), "VA 2\r\n42\r\n");
    check("ma c v t\r\n", Main, counter(42), "VA 2 t-1\r\n42\r\n");
    let step = ReadCounterMeta(MUTATED, 42);
    check("ma k v t\r\n", step, meta(7, false), "VA 2 t-1\r\n42\r\n");
    let step = SetExpiry(MUTATED, 42);
    check("ma k v T9\r\n", step, ok(), "VA 2\r\n42\r\n");
    let other = failed(Status::KeyExists);
    check("ma k v T9\r\n", step, other, "VA 2\r\n42\r\n");
    check("me k\r\n", Main, missed(), "EN\r\n");
    check("me k\r\n", Main, busy(), BUSY);
}

#[test]
fn counter_sync_write_returns_the_number_of_its_document() {
    let mut rig = Rig::new(Port::Memcached, Features::NONE);
    rig.park_text(b"incr k 1\r\n", TextStep::Main);
    // A SyncWrite comes with its document.
    rig.complete(0, mutation(Ok(MUTATED), Some(item("k", b"18"))));
    assert_eq!(rig.fresh(), b"18\r\n");
}
