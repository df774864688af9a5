//! Tests of commands on documents.

use std::io::Write as _;
use std::sync::Arc;

use kedge_disk::{ObservedDisk, PosixDisk, SimDisk};
use kedge_protocol::binary::Opcode;
use kedge_protocol::binary::commands::{
    GetMetaReply, KeyList, ObserveSeqnoReply, decode_counter, decode_failover_log, decode_vb_seqnos,
};
use kedge_types::{Datatype, DurabilityLevel, Seqno, Status, VbId};

use crate::client::{Client, Frame, Reply};
use crate::disk_stats::Gate;
use crate::replication::bucket;
use crate::server::{Kedge, Setup};

/// Extras of an increment or decrement.
pub(crate) fn count(delta: u64, initial: u64, expiry: u32) -> Vec<u8> {
    [
        &delta.to_be_bytes()[..],
        &initial.to_be_bytes(),
        &expiry.to_be_bytes(),
    ]
    .concat()
}

fn call(client: &mut Client, frame: impl FnOnce(Frame) -> Frame, opcode: Opcode) -> Reply {
    let request = client.request(opcode);
    client.call(&frame(request))
}

#[test]
fn documents_are_stored_read_and_deleted() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    assert_eq!(client.get("k").status, Status::KeyNotFound);
    let first = client.set("k", b"one").ok();
    let second = client
        .request(Opcode::Set)
        .store("k", b"{}")
        .extras(&[0, 0, 0, 7, 0, 0, 0, 0]);
    let second = client.call(&second).ok();
    assert!(second.cas > first.cas);
    assert_eq!(second.token().vb_uuid, first.token().vb_uuid);
    assert_eq!(second.token().seqno, Seqno(first.token().seqno.get() + 1));
    let got = client.get("k").ok();
    assert_eq!(
        (got.cas, got.flags(), got.text()),
        (second.cas, 7, "{}".to_owned())
    );
    assert_eq!(got.datatype, Datatype::JSON.bits(), "JSON is recognised");
    assert!(got.key.is_empty());
    let deleted = call(&mut client, |f| f.key("k"), Opcode::Delete).ok();
    assert_eq!(deleted.token().seqno, Seqno(first.token().seqno.get() + 2));
    assert_eq!(client.get("k").status, Status::KeyNotFound);
    assert_eq!(
        call(&mut client, |f| f.key("k"), Opcode::Delete).status,
        Status::KeyNotFound
    );
}

#[test]
fn write_conditions() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let cas = client.set("there", b"1").ok().cas;
    for (opcode, key, given, expected) in [
        (Opcode::Add, "there", 0, Status::KeyExists),
        (Opcode::Replace, "missing", 0, Status::KeyNotFound),
        (Opcode::Append, "missing", 0, Status::NotStored),
        (Opcode::Set, "there", cas + 1, Status::KeyExists),
        (Opcode::Set, "missing", 5, Status::KeyNotFound),
        (Opcode::Append, "there", cas + 1, Status::KeyExists),
    ] {
        let extras: &[u8] = if opcode == Opcode::Append {
            &[]
        } else {
            &[0; 8]
        };
        let reply = call(
            &mut client,
            |f| f.store(key, b"x").extras(extras).cas(given),
            opcode,
        );
        assert_eq!(reply.status, expected, "{opcode:?} {key}");
    }
    call(
        &mut client,
        |f| f.store("there", b"2").cas(cas),
        Opcode::Replace,
    )
    .ok();
    call(&mut client, |f| f.store("new", b"1"), Opcode::Add).ok();
    call(&mut client, |f| f.key("new").value(b"2"), Opcode::Append).ok();
    call(&mut client, |f| f.key("new").value(b"0"), Opcode::Prepend).ok();
    assert_eq!(client.get("new").ok().text(), "012");
}

#[test]
fn counters() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let number = |reply: Reply| decode_counter(&reply.ok().value).unwrap();
    let none = count(1, 10, u32::MAX);
    let missing = call(&mut client, |f| f.key("n").extras(&none), Opcode::Increment);
    assert_eq!(missing.status, Status::KeyNotFound);
    let one = count(5, 10, 0);
    assert_eq!(
        number(call(
            &mut client,
            |f| f.key("n").extras(&one),
            Opcode::Increment
        )),
        10
    );
    assert_eq!(
        number(call(
            &mut client,
            |f| f.key("n").extras(&one),
            Opcode::Increment
        )),
        15
    );
    assert_eq!(
        number(call(
            &mut client,
            |f| f.key("n").extras(&count(99, 0, 0)),
            Opcode::Decrement
        )),
        0
    );
    assert_eq!(client.get("n").ok().text(), "0");
    let durable = client
        .request(Opcode::Increment)
        .key("n")
        .extras(&one)
        .durable(DurabilityLevel::PersistToMajority);
    assert_eq!(number(client.call(&durable)), 5, "also when it was parked");
    client.set("n", b"text").ok();
    let bad = call(&mut client, |f| f.key("n").extras(&one), Opcode::Increment);
    assert_eq!(bad.status, Status::DeltaBadValue);
}

#[test]
fn touch_replies_without_extras_and_gat_with_flags() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let set = client
        .request(Opcode::Set)
        .store("k", b"v")
        .extras(&[0, 0, 0, 9, 0, 0, 0, 0]);
    client.call(&set).ok();
    for durable in [false, true] {
        let level = DurabilityLevel::PersistToMajority;
        let with = |frame: Frame| if durable { frame.durable(level) } else { frame };
        let extras = [0, 0, u8::from(durable), 200];
        let touched = call(
            &mut client,
            |f| with(f.key("k").extras(&extras)),
            Opcode::Touch,
        )
        .ok();
        assert!(touched.extras.is_empty() && touched.value.is_empty() && touched.cas != 0);
        let extras = [0, 0, u8::from(durable), 100];
        let got = call(
            &mut client,
            |f| with(f.key("k").extras(&extras)),
            Opcode::Gat,
        )
        .ok();
        assert_eq!(
            (got.flags(), got.text()),
            (9, "v".to_owned()),
            "durable {durable}"
        );
        assert_eq!(client.get("k").cas, got.cas);
    }
}

#[test]
fn locks() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    client.set("k", b"v").ok();
    let locked = call(
        &mut client,
        |f| f.key("k").extras(&[0, 0, 0, 15]),
        Opcode::GetLocked,
    )
    .ok();
    assert_eq!(locked.text(), "v");
    assert_eq!(
        call(&mut client, |f| f.key("k"), Opcode::GetLocked).status,
        Status::Locked
    );
    assert_eq!(
        client.get("k").ok().cas,
        u64::MAX,
        "the CAS of a locked document is hidden"
    );
    assert_eq!(client.set("k", b"w").status, Status::Locked);
    let wrong = call(
        &mut client,
        |f| f.key("k").cas(locked.cas + 1),
        Opcode::UnlockKey,
    );
    assert_eq!(wrong.status, Status::Locked);
    call(
        &mut client,
        |f| f.key("k").cas(locked.cas),
        Opcode::UnlockKey,
    )
    .ok();
    let again = call(
        &mut client,
        |f| f.key("k").cas(locked.cas),
        Opcode::UnlockKey,
    );
    assert_eq!(again.status, Status::NotLocked);

    let mut old = kedge.bare();
    let frame = |opcode| Frame::new(opcode, 1).key("k");
    let cas = old.call(&frame(Opcode::GetLocked)).ok().cas;
    assert_eq!(
        old.call(&frame(Opcode::GetLocked)).status,
        Status::TemporaryFailure
    );
    assert_eq!(
        old.call(&frame(Opcode::Set).store("k", b"w")).status,
        Status::KeyExists
    );
    old.call(&frame(Opcode::UnlockKey).cas(cas)).ok();
}

#[test]
fn metadata_shows_tombstones() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    client.set("k", b"[]").ok();
    let v2 = call(&mut client, |f| f.key("k").extras(&[2]), Opcode::GetMeta).ok();
    let meta = GetMetaReply::decode(&v2.extras).unwrap();
    assert!(!meta.deleted);
    assert_eq!(meta.datatype, Some(Datatype::JSON));
    call(&mut client, |f| f.key("k"), Opcode::Delete).ok();
    let v1 = call(&mut client, |f| f.key("k"), Opcode::GetMeta).ok();
    let meta = GetMetaReply::decode(&v1.extras).unwrap();
    assert!(meta.deleted);
    assert_eq!(meta.rev_seqno.get(), 2);
    assert_eq!(
        call(&mut client, |f| f.key("no"), Opcode::GetMeta).status,
        Status::KeyNotFound
    );
}

#[test]
fn getk_echoes_the_key_as_it_was_sent() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    client.set("k", b"v").ok();
    let got = call(&mut client, |f| f.key("k"), Opcode::Getk).ok();
    assert_eq!(
        (got.key.as_slice(), got.value.as_slice()),
        (&b"\0k"[..], &b"v"[..])
    );
}

#[test]
fn keys_are_checked() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let long = "k".repeat(250);
    client.set(&long, b"v").ok();
    assert_eq!(client.get(&long).ok().text(), "v");
    assert_eq!(client.set(&"k".repeat(251), b"v").status, Status::Invalid);
    for key in [&b"\x80\x00k"[..], b"\x00", b""] {
        let frame = Frame {
            key: key.to_vec(),
            ..client.request(Opcode::Get)
        };
        assert_eq!(client.call(&frame).status, Status::Invalid, "{key:?}");
    }
    let other = Frame {
        key: b"\x08k".to_vec(),
        ..client.request(Opcode::Get)
    };
    let reply = client.call(&other);
    assert_eq!(reply.status, Status::UnknownCollection);
    let body: serde_json::Value = serde_json::from_slice(&reply.value).unwrap();
    assert_eq!(body["manifest_uid"], "0");
}

#[test]
fn a_datatype_needs_its_feature() {
    let kedge = Kedge::start();
    let mut client = kedge.bare();
    for datatype in [Datatype::JSON, Datatype::SNAPPY, Datatype::XATTR] {
        let frame = Frame::new(Opcode::Set, 1)
            .store("k", b"v")
            .datatype(datatype);
        assert_eq!(client.call(&frame).status, Status::Invalid, "{datatype:?}");
    }
}

#[test]
fn compressed_values_are_inflated_without_snappy() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let value = b"0123456789".repeat(5_000);
    let packed = snap::raw::Encoder::new().compress_vec(&value).unwrap();
    let frame = client
        .request(Opcode::Set)
        .store("k", &packed)
        .datatype(Datatype::SNAPPY);
    client.call(&frame).ok();
    let got = client.get("k").ok();
    assert_eq!(
        got.datatype & Datatype::SNAPPY.bits(),
        Datatype::SNAPPY.bits()
    );
    assert_eq!(got.value, packed);
    let mut plain = kedge.bare();
    let got = plain.get("k").ok();
    assert_eq!((got.datatype, got.value), (0, value.clone()));
    let broken = client
        .request(Opcode::Set)
        .store("b", b"\xff\xff\xff")
        .datatype(Datatype::SNAPPY);
    assert_eq!(client.call(&broken).status, Status::Invalid);
    call(&mut client, |f| f.key("k").value(b"!"), Opcode::Append).ok();
    assert_eq!(plain.get("k").ok().value, [&value[..], b"!"].concat());
}

#[test]
fn durable_writes_and_preserved_expiry() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    for level in [
        DurabilityLevel::Majority,
        DurabilityLevel::MajorityAndPersistOnActive,
        DurabilityLevel::PersistToMajority,
    ] {
        let key = format!("{level:?}");
        let set = client.request(Opcode::Set).store(&key, b"v").durable(level);
        let reply = client.call(&set).ok();
        assert_eq!(client.get(&key).ok().cas, reply.cas);
        let delete = client.request(Opcode::Delete).key(&key).durable(level);
        assert!(client.call(&delete).ok().token().seqno > reply.token().seqno);
    }
    let get = client
        .request(Opcode::Get)
        .key("k")
        .durable(DurabilityLevel::Majority);
    assert_eq!(
        client.call(&get).status,
        Status::Invalid,
        "a read is not durable"
    );
    let set = client
        .request(Opcode::Set)
        .store("k", b"v")
        .extras(&[0, 0, 0, 0, 0, 0, 1, 0]);
    client.call(&set).ok();
    let mut keep = client.request(Opcode::Set).store("k", b"w");
    keep.infos.preserve_ttl = true;
    client.call(&keep).ok();
    let meta = call(&mut client, |f| f.key("k"), Opcode::GetMeta).ok();
    assert_ne!(GetMetaReply::decode(&meta.extras).unwrap().expiry, 0);
}

#[test]
fn seqnos_and_failover_logs() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let token = client.set("k", b"v").ok().token();
    let vb = VbId::of_key(b"k", 16);
    let at = |frame: Frame| Frame {
        vb: vb.get(),
        ..frame
    };
    let seqno = token.seqno.get().to_be_bytes();
    call(
        &mut client,
        |f| at(f.extras(&seqno)),
        Opcode::SeqnoPersistence,
    )
    .ok();
    let uuid = token.vb_uuid.get().to_be_bytes();
    let observed = call(&mut client, |f| at(f.value(&uuid)), Opcode::ObserveSeqno).ok();
    let observed = ObserveSeqnoReply::decode(&observed.value).unwrap();
    assert_eq!(
        (observed.persisted, observed.current),
        (token.seqno, token.seqno)
    );
    let unknown = call(
        &mut client,
        |f| at(f.value(&[0, 0, 0, 0, 0, 0, 0, 1])),
        Opcode::ObserveSeqno,
    );
    assert_eq!(unknown.status, Status::KeyNotFound);
    let all = client.simple(Opcode::GetAllVbSeqnos).ok();
    let all = decode_vb_seqnos(&all.value).unwrap();
    assert_eq!(all.len(), 16);
    assert!(all.contains(&(vb, token.seqno)));
    let log = call(&mut client, at, Opcode::GetFailoverLog).ok();
    let log = decode_failover_log(&log.value).unwrap();
    assert_eq!(log[0].vb_uuid, token.vb_uuid);
    let state = call(&mut client, at, Opcode::GetVbucket).ok();
    assert_eq!(state.value, 1_u32.to_be_bytes());
}

#[test]
fn observe_returns_key_states() {
    let kedge = Kedge::start();
    let mut client = kedge.bare();
    let level = DurabilityLevel::PersistToMajority;
    let set = Frame::new(Opcode::Set, 1).store("k", b"v").durable(level);
    let cas = client.call(&set).ok().cas;
    // The commit of a SyncWrite has a seqno of its own, behind that of the prepare.
    let persisted = Frame::new(Opcode::SeqnoPersistence, 3)
        .key("k")
        .extras(&2_u64.to_be_bytes());
    client
        .call(&Frame {
            key: Vec::new(),
            ..persisted
        })
        .ok();
    let entry = |key: &str| {
        let vb = VbId::of_key(key.as_bytes(), 16).get();
        [
            &vb.to_be_bytes()[..],
            &(key.len() as u16).to_be_bytes(),
            key.as_bytes(),
        ]
        .concat()
    };
    let value = [entry("k"), entry("no")].concat();
    let reply = client
        .call(&Frame::new(Opcode::Observe, 2).value(&value))
        .ok();
    let expected = [
        entry("k"),
        vec![1],
        cas.to_be_bytes().to_vec(),
        entry("no"),
        vec![0x80],
        vec![0; 8],
    ];
    assert_eq!(reply.value, expected.concat());
}

#[test]
fn random_documents_and_lists_of_keys() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    assert_eq!(
        client.simple(Opcode::GetRandomKey).status,
        Status::KeyNotFound
    );
    client.set("k", b"v").ok();
    let random = client.simple(Opcode::GetRandomKey).ok();
    assert_eq!(
        (random.key.as_slice(), random.value.as_slice()),
        (&b"k"[..], &b"v"[..])
    );
    let listed = call(&mut client, |f| f.key("k"), Opcode::GetKeys).ok();
    let keys: Vec<_> = KeyList::new(&listed.value).map(Result::unwrap).collect();
    assert_eq!(keys, [b"k"]);
}

#[test]
fn flush_requires_flush_enabled() {
    for allowed in [true, false] {
        let mut setup = Setup::default();
        setup.bucket.flush_enabled = allowed;
        let kedge = Kedge::with(setup);
        let mut client = kedge.client();
        client.set("k", b"v").ok();
        let flushed = client.simple(Opcode::Flush).status;
        let (flush, get) = if allowed {
            (Status::Success, Status::KeyNotFound)
        } else {
            (Status::NotSupported, Status::Success)
        };
        assert_eq!((flushed, client.get("k").status), (flush, get));
    }
}

/// Tests both protocols: commands behind the flush find an empty bucket.
#[test]
fn flush_waiting_for_the_disk_blocks_no_other_client() {
    let gate = Arc::new(Gate::default());
    let sim = Arc::new(SimDisk::new(1));
    let mut setup = Setup {
        disk: Arc::new(ObservedDisk::new(sim, Arc::clone(&gate))),
        ..Setup::default()
    };
    assert_eq!(setup.threads, 1);
    setup.bucket.flush_enabled = true;
    let kedge = Kedge::with(setup);
    let (mut binary, mut other) = (kedge.client(), kedge.client());
    let mut text = kedge.text();
    other.set("k", b"v").ok();
    bucket(&kedge).persistence().sync().unwrap();
    gate.set(true);
    let flush = binary.request(Opcode::Flush);
    let get = binary.request(Opcode::Get).key("k");
    binary.send(&[flush.bytes(), get.bytes()].concat());
    text.stream.write_all(b"flush_all\r\nget k\r\n").unwrap();
    for _ in 0..20 {
        assert_eq!(other.simple(Opcode::Noop).status, Status::Success);
    }
    gate.set(false);
    assert_eq!(binary.reply().status, Status::Success);
    assert_eq!(binary.reply().status, Status::KeyNotFound);
    text.expect("", "OK\r\nEND\r\n");
}

#[test]
fn documents_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let setup = || Setup {
        disk: Arc::new(PosixDisk),
        data_dir: dir.path().to_owned(),
        ..Setup::default()
    };
    let kedge = Kedge::with(setup());
    let mut client = kedge.client();
    client.set("k", b"v").ok();
    kedge.stop();
    client.assert_closed();
    assert_eq!(Kedge::with(setup()).client().get("k").ok().text(), "v");
}
