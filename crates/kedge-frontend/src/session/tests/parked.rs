//! Tests of commands that wait for a document from the disk. The test parks them as their handlers do, and completes
//! them as a bucket would.

use kedge_bucket::{Item, Meta, Mutated, ObserveState};
use kedge_protocol::binary::ReplyFrame;
use kedge_protocol::binary::commands::{KeyState, Observe, ObserveReply, ObservedKey};
use kedge_types::{Cas, CollectionId, DocKey, Expiry, RevSeqno, Seqno, VbUuid};
use kedge_vbucket::ItemMeta;

use super::*;
use crate::commands::row;

const CAS: Cas = Cas(0x1234);
const MUTATED: Mutated = Mutated {
    cas: CAS,
    uuid: VbUuid(7),
    seqno: Seqno(9),
};

pub(crate) fn item(key: &str, value: &[u8]) -> Item {
    item_of(CollectionId::DEFAULT, key, value)
}

fn item_of(collection: CollectionId, key: &str, value: &[u8]) -> Item {
    let key = DocKey::new(collection, key.as_bytes()).unwrap();
    let meta = ItemMeta {
        cas: CAS,
        seqno: Seqno(9),
        rev: RevSeqno(3),
        flags: 5,
        expiry: Expiry(0x7000_0000),
        ..ItemMeta::default()
    };
    Item::new(&meta, key.as_bytes(), &[value])
}

pub(crate) fn read(key: &str, value: &[u8]) -> Completion {
    Completion::Read {
        result: Ok((item(key, value), CAS)),
    }
}

pub(crate) fn mutation(result: Result<Mutated, Status>, item: Option<Item>) -> Completion {
    Completion::SyncWrite { result, item }
}

fn meta() -> Meta {
    let item = item("k", b"v");
    Meta {
        cas: CAS,
        flags: item.flags(),
        expiry: item.expiry(),
        rev_seqno: item.rev_seqno(),
        seqno: item.seqno(),
        datatype: Datatype::JSON,
        deleted: false,
    }
}

/// The completions that a bucket may give a parked command, in the order of [`ENDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Success,
    Miss,
    Busy,
}

const ENDS: [(End, Status); 3] = [
    (End::Success, Status::Success),
    (End::Miss, Status::KeyNotFound),
    (End::Busy, Status::TemporaryFailure),
];

/// The completion of a command of this opcode.
fn completion(opcode: Opcode, status: Status) -> Completion {
    let failed = status != Status::Success;
    fn result<T>(failed: bool, status: Status, success: T) -> Result<T, Status> {
        if failed { Err(status) } else { Ok(success) }
    }
    match opcode.base() {
        Opcode::Get | Opcode::Getk | Opcode::GetLocked | Opcode::GetRandomKey => Completion::Read {
            result: result(failed, status, (item("k", b"v"), CAS)),
        },
        Opcode::GetMeta => Completion::Meta {
            result: result(failed, status, meta()),
        },
        Opcode::GetKeys => Completion::Keys {
            result: result(failed, status, vec![(*b"k").into(), (*b"kk").into()]),
        },
        Opcode::Increment | Opcode::Decrement => Completion::Counter {
            result: result(failed, status, (MUTATED, 42)),
        },
        _ => mutation(
            result(failed, status, MUTATED),
            (!failed).then(|| item("k", b"v")),
        ),
    }
}

/// (CAS, extras, key, value) of the reply to a success.
fn expected(opcode: Opcode) -> (Cas, Vec<u8>, Vec<u8>, Vec<u8>) {
    let flags = 5_u32.to_be_bytes().to_vec();
    let token = || [7_u64.to_be_bytes(), 9_u64.to_be_bytes()].concat();
    let text = |text: &[u8]| text.to_vec();
    match opcode.base() {
        Opcode::Get | Opcode::Gat | Opcode::GetLocked => (CAS, flags, text(b""), text(b"v")),
        Opcode::Getk | Opcode::Gatk | Opcode::GetRandomKey => (CAS, flags, text(b"k"), text(b"v")),
        Opcode::Touch => (CAS, text(b""), text(b""), text(b"")),
        Opcode::GetMeta => {
            let extras = [
                &0_u32.to_be_bytes()[..],
                &5_u32.to_be_bytes(),
                &0x7000_0000_u32.to_be_bytes(),
                &3_u64.to_be_bytes(),
            ];
            (CAS, extras.concat(), text(b""), text(b""))
        }
        Opcode::GetKeys => (Cas(0), text(b""), text(b""), text(b"\0\x01k\0\x02kk")),
        Opcode::Increment | Opcode::Decrement => {
            (CAS, token(), text(b""), 42_u64.to_be_bytes().to_vec())
        }
        _ => (CAS, token(), text(b""), text(b"")),
    }
}

const FEATURES: Features = Features::of(&[
    Feature::Xerror,
    Feature::MutationSeqno,
    Feature::UnorderedExecution,
]);

const COLLECTIONS: Features = FEATURES.with(Feature::Collections);

impl Rig {
    /// Parks a command as its handler does. Returns its slot.
    fn park(&mut self, opcode: Opcode, opaque: u32, kind: ReplyKind) -> u8 {
        let mut turn = turn(&self.shared, &mut self.flush_requests);
        let (_, slot) = ConnectionId::of(self.session.next_cookie());
        let tag = RequestTag {
            opcode,
            opaque,
            start_ns: turn.now.mono_ns,
        };
        let request = ParkedRequest { tag, kind };
        self.session
            .park(&mut turn, request, !opcode.is_reorderable());
        slot
    }

    pub(crate) fn complete(&mut self, slot: u8, completion: Completion) -> Flow {
        let mut turn = turn(&self.shared, &mut self.flush_requests);
        self.session
            .on_completion(&mut turn, slot, completion, &mut self.out)
    }

    /// Sends the output.
    pub(crate) fn send(&mut self) {
        while !self.out.is_empty() {
            self.out.write_to(&mut Vec::new()).unwrap();
        }
        self.out.recycle();
        self.read = 0;
    }

    /// The bytes of replies since the last call.
    pub(crate) fn fresh(&mut self) -> Vec<u8> {
        let all = self.out.to_vec();
        let fresh = all[self.read..].to_vec();
        self.read = all.len();
        fresh
    }
}

fn only_reply(bytes: &[u8]) -> Option<ReplyFrame<'_>> {
    match parse_response(bytes, 2 << 20) {
        ParseReply::Reply { reply, consumed } => {
            assert_eq!(consumed, bytes.len(), "one reply");
            Some(reply)
        }
        _ => {
            assert!(bytes.is_empty());
            None
        }
    }
}

/// Every command that a bucket may park, quiet forms too.
const PARKABLE: [Opcode; 32] = [
    Opcode::Get,
    Opcode::Getq,
    Opcode::Getk,
    Opcode::Getkq,
    Opcode::Gat,
    Opcode::Gatq,
    Opcode::Gatk,
    Opcode::Gatkq,
    Opcode::GetLocked,
    Opcode::UnlockKey,
    Opcode::GetMeta,
    Opcode::GetqMeta,
    Opcode::GetRandomKey,
    Opcode::GetKeys,
    Opcode::Touch,
    Opcode::Set,
    Opcode::Setq,
    Opcode::Add,
    Opcode::Addq,
    Opcode::Replace,
    Opcode::Replaceq,
    Opcode::Delete,
    Opcode::Deleteq,
    Opcode::Append,
    Opcode::Appendq,
    Opcode::Prepend,
    Opcode::Prependq,
    Opcode::Increment,
    Opcode::Incrementq,
    Opcode::Decrement,
    Opcode::Decrementq,
    Opcode::SeqnoPersistence,
];

#[test]
fn every_parked_command_is_answered_and_quiet_ones_stay_quiet() {
    let mut rig = Rig::new(Port::Kv, FEATURES);
    rig.fresh();
    for opcode in PARKABLE {
        for (end, status) in ENDS {
            let what = format!("{opcode:?} {end:?}");
            let slot = rig.park(opcode, 77, (row(opcode).reply)());
            assert_eq!(rig.session.in_flight(), 1);
            let ended = match opcode {
                Opcode::SeqnoPersistence | Opcode::UnlockKey if end == End::Success => {
                    Completion::Persisted(Ok(()))
                }
                Opcode::SeqnoPersistence | Opcode::UnlockKey => Completion::Persisted(Err(status)),
                _ => completion(opcode, status),
            };
            assert_eq!(rig.complete(slot, ended), Flow::Next, "{what}");
            assert_eq!(rig.session.in_flight(), 0, "{what}");
            let bytes = rig.fresh();
            let reply = only_reply(&bytes);
            assert_eq!(reply.is_none(), opcode.suppresses(status), "{what}");
            let Some(reply) = reply else {
                continue;
            };
            assert_eq!((reply.opcode, reply.opaque), (opcode.wire(), 77), "{what}");
            assert_eq!(reply.status(), Some(status), "{what}");
            if matches!(opcode, Opcode::SeqnoPersistence | Opcode::UnlockKey) {
                continue;
            }
            if end == End::Success {
                let (cas, extras, key, value) = expected(opcode);
                assert_eq!(reply.cas, cas, "{what}");
                assert_eq!(reply.extras, extras, "{what}");
                assert_eq!(reply.key, key, "{what}");
                assert_eq!(reply.value, value, "{what}");
            }
        }
    }
}

#[test]
fn counter_sync_write_returns_the_number_of_its_document() {
    let mut rig = Rig::new(Port::Kv, FEATURES);
    rig.fresh();
    let slot = rig.park(Opcode::Increment, 1, ReplyKind::Counter);
    rig.complete(slot, mutation(Ok(MUTATED), Some(item("k", b"18"))));
    let bytes = rig.fresh();
    assert_eq!(only_reply(&bytes).unwrap().value, 18_u64.to_be_bytes());
}

#[test]
fn getk_returns_the_key_as_sent_and_random_key_has_no_collection() {
    let named = CollectionId(300);
    let plain = CollectionId::DEFAULT;
    for (features, opcode, collection, expected) in [
        (FEATURES, Opcode::Getk, plain, &b"k"[..]),
        (COLLECTIONS, Opcode::Getk, plain, b"\0k"),
        (COLLECTIONS, Opcode::Getkq, named, b"\xac\x02k"),
        (FEATURES, Opcode::Gatk, plain, b"k"),
        (COLLECTIONS, Opcode::GetRandomKey, plain, b"k"),
        (COLLECTIONS, Opcode::GetRandomKey, named, b"k"),
        (COLLECTIONS, Opcode::Get, named, b""),
    ] {
        let mut rig = Rig::new(Port::Kv, features);
        rig.fresh();
        for kind in [(row(opcode).reply)(), ReplyKind::WholeDocument] {
            let what = format!("{opcode:?} {collection:?} {kind:?}");
            let slot = rig.park(opcode, 1, kind);
            let result = Ok((item_of(collection, "k", b"v"), CAS));
            rig.complete(slot, Completion::Read { result });
            let bytes = rig.fresh();
            assert_eq!(only_reply(&bytes).unwrap().key, expected, "{what}");
        }
    }
}

#[test]
fn get_meta_version_2_returns_the_datatype() {
    let mut rig = Rig::new(Port::Kv, FEATURES);
    rig.fresh();
    let kind = ReplyKind::Meta {
        with_datatype: true,
    };
    let slot = rig.park(Opcode::GetMeta, 1, kind);
    rig.complete(slot, completion(Opcode::GetMeta, OK));
    let bytes = rig.fresh();
    let reply = only_reply(&bytes).unwrap();
    assert_eq!(reply.extras.len(), 21);
    assert_eq!(reply.extras[20], Datatype::JSON.bits());
}

#[test]
fn locked_status_depends_on_xerror() {
    for (features, expected) in [
        (FEATURES, Status::Locked),
        (
            Features::of(&[Feature::MutationSeqno]),
            Status::TemporaryFailure,
        ),
    ] {
        let mut rig = Rig::new(Port::Kv, features);
        rig.replies();
        let slot = rig.park(Opcode::GetLocked, 1, ReplyKind::Locked);
        let result = Err(Status::Locked);
        rig.complete(slot, Completion::Read { result });
        let slot = rig.park(Opcode::UnlockKey, 2, ReplyKind::Unlocked);
        rig.complete(slot, Completion::Persisted(Err(Status::Locked)));
        assert_eq!(rig.replies(), [(1, expected), (2, expected)]);
    }
}

/// A bucket that closes completes all parked commands alike, and such a completion must never be taken for a success.
#[test]
fn completion_of_the_wrong_kind_fails_the_command() {
    let mut rig = Rig::new(Port::Kv, FEATURES);
    rig.replies();
    let persisted = Completion::Persisted;
    for opcode in PARKABLE {
        // For these it is the right kind.
        if matches!(opcode, Opcode::SeqnoPersistence | Opcode::UnlockKey) {
            continue;
        }
        for (result, expected) in [
            (Err(Status::TemporaryFailure), Status::TemporaryFailure),
            (Ok(()), Status::Internal),
        ] {
            let slot = rig.park(opcode, 1, (row(opcode).reply)());
            rig.complete(slot, persisted(result));
            assert_eq!(rig.replies(), [(1, expected)], "{opcode:?} {result:?}");
        }
    }
}

#[test]
fn parked_read_preserves_order() {
    let mut rig = Rig::new(Port::Kv, Features::of(&[Feature::Xerror]));
    rig.replies();
    let slot = rig.park(Opcode::Getq, 1, (row(Opcode::Getq).reply)());
    assert_eq!(rig.give(&[get(2), get(3)].concat()), Halt::Parked);
    assert_eq!(rig.replies(), []);
    rig.complete(slot, read("k", b"v"));
    assert_eq!(rig.give(&[]), Halt::NeedBytes(24));
    assert_eq!(rig.replies(), [(1, OK), (2, MISS), (3, MISS)]);
}

#[test]
fn unordered_reads_complete_in_any_order_and_a_barrier_waits() {
    let mut rig = Rig::new(Port::Kv, UNORDERED);
    let first = rig.park(Opcode::Get, 1, (row(Opcode::Get).reply)());
    let second = rig.park(Opcode::Get, 2, (row(Opcode::Get).reply)());
    let barrier = FrameInfos {
        barrier: true,
        ..FrameInfos::default()
    };
    rig.give(&[get(3), frame(Opcode::Get, 4, "nothing", barrier), get(5)].concat());
    assert_eq!(rig.replies(), [(3, MISS)], "the barrier waits for both");
    rig.complete(second, read("k", b"v"));
    assert_eq!(rig.give(&[]), Halt::Parked);
    assert_eq!(rig.replies(), [(2, OK)]);
    rig.complete(first, completion(Opcode::Get, MISS));
    rig.give(&[]);
    assert_eq!(rig.replies(), [(1, MISS), (4, MISS), (5, MISS)]);
}

#[test]
fn large_value_is_sent_without_a_copy() {
    let mut rig = Rig::new(Port::Kv, FEATURES);
    rig.fresh();
    let value = vec![7; 1 << 20];
    let slot = rig.park(Opcode::Get, 1, (row(Opcode::Get).reply)());
    rig.complete(slot, read("k", &value));
    assert!(rig.out.buffer().len() < 1 << 10, "no copy of the value");
    let bytes = rig.fresh();
    assert_eq!(only_reply(&bytes).unwrap().value, value);
}

#[test]
fn observe_continues_with_the_next_key() {
    let mut rig = Rig::new(Port::Kv, Features::of(&[Feature::Xerror]));
    rig.give(&frame(Opcode::Set, 1, "there", FrameInfos::default()));
    rig.fresh();
    let asked = |key: &'static str| ObservedKey {
        vb: VbId::of_key(key.as_bytes(), 4),
        key: key.as_bytes(),
    };
    // The first key was answered at once, the second waits for the disk.
    let keys = [asked("cold"), asked("there"), asked("nowhere")];
    let mut before = Vec::new();
    ObserveReply {
        key: asked("first"),
        state: KeyState::NotFound,
        cas: Cas(0),
    }
    .encode(&mut before);
    let observing = || {
        let mut bytes = Vec::new();
        Observe::encode(&keys, &RequestWriter::new(Opcode::Observe), &mut bytes);
        let keys = keys.iter().map(|asked| (asked.vb, asked.key.into()));
        ReplyKind::Observe(Box::new(PendingObserve {
            value: before.clone(),
            keys: keys.collect(),
        }))
    };
    let slot = rig.park(Opcode::Observe, 5, observing());
    let result = Ok((ObserveState::Persisted, CAS));
    rig.complete(slot, Completion::Observed { result });
    let bytes = rig.fresh();
    let reply = only_reply(&bytes).unwrap();
    assert_eq!((reply.opaque, reply.status()), (5, Some(OK)));
    let entries = ObserveReply::decode_all(reply.value).unwrap();
    let seen: Vec<(&[u8], KeyState)> = entries
        .iter()
        .map(|entry| (entry.key.key, entry.state))
        .collect();
    assert_eq!(
        seen,
        [
            (&b"first"[..], KeyState::NotFound),
            (b"cold", KeyState::Persisted),
            (b"there", KeyState::NotPersisted),
            (b"nowhere", KeyState::NotFound),
        ]
    );
    assert_eq!(entries[1].cas, CAS);
    // A failure of the disk is the failure of the whole command.
    let slot = rig.park(Opcode::Observe, 6, observing());
    let result = Err(Status::TemporaryFailure);
    rig.complete(slot, Completion::Observed { result });
    assert_eq!(rig.replies(), [(6, Status::TemporaryFailure)]);
}
