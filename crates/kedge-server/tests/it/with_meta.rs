//! Tests of the with-meta commands and RETURN_META.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use kedge_bucket::{BucketChange, ConflictResolution};
use kedge_protocol::binary::Opcode;
use kedge_protocol::binary::commands::{GetMetaReply, ReturnMetaReply};
use kedge_types::{Datatype, DurabilityLevel, Status};

use crate::client::{Client, Frame, Reply, SDK_FEATURES};
use crate::evicted::{POLICIES, evict_all, figure, start, waited};
use crate::server::{Kedge, PASSWORD, Setup};

const FORCE_ACCEPT: u32 = 2;
const REGENERATE_CAS: u32 = 4;
const SKIP: u32 = 8;
const IS_EXPIRATION: u32 = 16;

/// The metadata of a with-meta command.
#[derive(Clone, Copy)]
pub(crate) struct Meta {
    flags: u32,
    expiry: u32,
    rev: u64,
    cas: u64,
    options: u32,
}

impl Meta {
    pub(crate) fn of(rev: u64, cas: u64) -> Self {
        Self {
            flags: 5,
            expiry: 0,
            rev,
            cas,
            options: 0,
        }
    }

    pub(crate) fn extras(self) -> Vec<u8> {
        let mut extras = Vec::new();
        extras.extend(self.flags.to_be_bytes());
        extras.extend(self.expiry.to_be_bytes());
        extras.extend(self.rev.to_be_bytes());
        extras.extend(self.cas.to_be_bytes());
        if self.options != 0 {
            extras.extend(self.options.to_be_bytes());
        }
        extras
    }
}

pub(crate) fn frame(client: &mut Client, opcode: Opcode, key: &str, meta: Meta) -> Frame {
    let frame = client.request(opcode).key(key).extras(&meta.extras());
    match opcode {
        Opcode::DelWithMeta | Opcode::DelqWithMeta => frame,
        _ => frame.value(b"{}"),
    }
}

pub(crate) fn call(client: &mut Client, opcode: Opcode, key: &str, meta: Meta) -> Reply {
    let frame = frame(client, opcode, key, meta);
    client.call(&frame)
}

#[track_caller]
pub(crate) fn meta_of(client: &mut Client, key: &str) -> (GetMetaReply, u64) {
    let frame = client.request(Opcode::GetMeta).key(key).extras(&[2]);
    let reply = client.call(&frame).ok();
    (GetMetaReply::decode(&reply.extras).unwrap(), reply.cas)
}

fn now_secs() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u32::try_from(since.as_secs()).unwrap()
}

#[test]
fn with_meta_keeps_metadata_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let setup = || Setup {
        disk: Arc::new(kedge_disk::PosixDisk),
        data_dir: dir.path().to_owned(),
        ..Setup::default()
    };
    let kedge = Kedge::with(setup());
    let mut client = kedge.client();
    let meta = Meta {
        expiry: now_secs() + 1_000,
        ..Meta::of(9, 1_234)
    };
    let stored = call(&mut client, Opcode::SetWithMeta, "a", meta).ok();
    assert_eq!((stored.cas, stored.token().seqno.get()), (1_234, 1));
    let stored = call(&mut client, Opcode::AddWithMeta, "b", Meta::of(3, 77)).ok();
    assert_eq!(stored.cas, 77);
    let gone = Meta {
        expiry: now_secs() - 100,
        options: IS_EXPIRATION,
        ..Meta::of(4, 78)
    };
    assert_eq!(
        call(&mut client, Opcode::DelWithMeta, "b", gone).ok().cas,
        78
    );
    kedge.stop();

    let kedge = Kedge::with(setup());
    let mut client = kedge.client();
    let (found, cas) = meta_of(&mut client, "a");
    let expected = GetMetaReply {
        deleted: false,
        flags: 5,
        expiry: meta.expiry,
        rev_seqno: 9.into(),
        datatype: Some(Datatype::JSON),
    };
    assert_eq!((found, cas), (expected, 1_234));
    let expected = GetMetaReply {
        deleted: true,
        expiry: gone.expiry,
        rev_seqno: 4.into(),
        datatype: Some(Datatype::RAW),
        ..expected
    };
    assert_eq!(meta_of(&mut client, "b"), (expected, 78));
    let got = client.get("a").ok();
    assert_eq!((got.flags(), got.text().as_str()), (5, "{}"));
}

#[test]
fn with_meta_options() {
    use Opcode::{AddWithMeta, DelWithMeta, SetWithMeta};
    use Status::{Invalid, KeyExists, Success};
    // The bucket's rule; then on a document of revision 5 and CAS 500: command, revision, CAS, options, status.
    let seqno: &[(Opcode, u64, u64, u32, Status)] = &[
        (SetWithMeta, 4, 999, 0, KeyExists),
        (SetWithMeta, 5, 500, 0, KeyExists),
        (SetWithMeta, 4, 999, SKIP, Success),
        (SetWithMeta, 4, 0, SKIP | REGENERATE_CAS, Success),
        (SetWithMeta, 6, 1, 0, Success),
        (SetWithMeta, 6, 1, REGENERATE_CAS, Invalid),
        (SetWithMeta, 6, 1, FORCE_ACCEPT, Invalid),
        (SetWithMeta, 6, 1, IS_EXPIRATION, Invalid),
        (SetWithMeta, 6, 1, 0x20, Invalid),
        (SetWithMeta, 6, 0, 0, Status::CasValueInvalid),
        (SetWithMeta, 6, u64::MAX, 0, Status::CasValueInvalid),
        (AddWithMeta, 6, 999, 0, KeyExists),
        (AddWithMeta, 6, 999, SKIP, KeyExists),
        (DelWithMeta, 5, 500, 0, KeyExists),
        (DelWithMeta, 5, 501, 0, Success),
        (DelWithMeta, 1, 1, SKIP | IS_EXPIRATION, Success),
    ];
    let lww: &[(Opcode, u64, u64, u32, Status)] = &[
        (SetWithMeta, 6, 501, 0, Invalid),
        (SetWithMeta, 6, 501, SKIP, Invalid),
        (SetWithMeta, 6, 499, FORCE_ACCEPT, KeyExists),
        (SetWithMeta, 1, 501, FORCE_ACCEPT, Success),
        (SetWithMeta, 6, 500, FORCE_ACCEPT, Success),
        (DelWithMeta, 5, 500, FORCE_ACCEPT, KeyExists),
        (DelWithMeta, 1, 501, FORCE_ACCEPT, Success),
        (DelWithMeta, 1, 1, FORCE_ACCEPT | SKIP, Success),
    ];
    for (resolution, rows) in [
        (ConflictResolution::Seqno, seqno),
        (ConflictResolution::Lww, lww),
    ] {
        let mut setup = Setup::default();
        setup.bucket.conflict_resolution = resolution;
        let kedge = Kedge::with(setup);
        let bucket = kedge.server().registry().get("default").unwrap();
        let mut client = kedge.client();
        let needed = match resolution {
            ConflictResolution::Seqno => 0,
            ConflictResolution::Lww => FORCE_ACCEPT,
        };
        for (number, (opcode, rev, cas, options, expected)) in rows.iter().enumerate() {
            let key = format!("k{number}");
            let there = Meta {
                options: needed,
                ..Meta::of(5, 500)
            };
            call(&mut client, SetWithMeta, &key, there).ok();
            let meta = Meta {
                options: *options,
                ..Meta::of(*rev, *cas)
            };
            let reply = call(&mut client, *opcode, &key, meta);
            assert_eq!(
                reply.status, *expected,
                "{resolution:?} {number} {opcode:?}"
            );
            let (found, now_has) = meta_of(&mut client, &key);
            if *expected != Success {
                assert_eq!((found.rev_seqno.get(), now_has), (5, 500), "{number}");
                continue;
            }
            assert_eq!(found.rev_seqno.get(), *rev, "{number}");
            assert_eq!(found.deleted, *opcode == DelWithMeta, "{number}");
            assert_eq!(reply.cas, now_has);
            let regenerated = options & REGENERATE_CAS != 0;
            assert_eq!(now_has != *cas, regenerated, "{number}");
        }
        let mut stats = Vec::new();
        bucket.stats(&mut |name, value| stats.push((name.to_owned(), value.to_owned())));
        let stat = |name: &str| {
            let found = stats.iter().find(|(known, _)| known == name);
            found.unwrap_or_else(|| panic!("no {name}")).1.clone()
        };
        let lost = |opcodes: &[Opcode]| {
            let lost = |(opcode, .., status): &&(Opcode, u64, u64, u32, Status)| {
                opcodes.contains(opcode) && *status == KeyExists
            };
            rows.iter().filter(lost).count().to_string()
        };
        let set = [SetWithMeta, AddWithMeta];
        assert_eq!(stat("ep_num_ops_set_meta_res_fail"), lost(&set));
        assert_eq!(stat("ep_num_ops_del_meta_res_fail"), lost(&[DelWithMeta]));
        let behind: u64 = stat("ep_active_behind_exceptions").parse().unwrap();
        assert!(behind >= rows.len() as u64, "{behind}");
        assert_eq!(figure(&bucket, "ep_active_ahead_exceptions"), 0);
    }
}

#[test]
fn quiet_with_meta_answers_only_failures() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let mut bytes = Vec::new();
    for (opcode, rev) in [
        (Opcode::SetqWithMeta, 5),
        (Opcode::SetqWithMeta, 4),
        (Opcode::AddqWithMeta, 9),
        (Opcode::DelqWithMeta, 6),
        (Opcode::DelqWithMeta, 6),
    ] {
        bytes.extend(frame(&mut client, opcode, "k", Meta::of(rev, 50)).bytes());
    }
    client.send(&bytes);
    for opcode in [
        Opcode::SetqWithMeta,
        Opcode::AddqWithMeta,
        Opcode::DelqWithMeta,
    ] {
        let reply = client.reply();
        assert_eq!(
            (reply.opcode, reply.status),
            (opcode.wire(), Status::KeyExists)
        );
    }
    assert_eq!(client.get("k").status, Status::KeyNotFound);
}

#[test]
fn conflict_resolution_with_an_evicted_document() {
    for policy in POLICIES {
        let (kedge, bucket) = start(policy, 256 << 20);
        let mut client = kedge.client();
        for key in ["loses", "wins", "goes", "told"] {
            call(&mut client, Opcode::SetWithMeta, key, Meta::of(5, 500)).ok();
        }
        evict_all(&bucket);
        let before = waited(&bucket);
        let lost = call(&mut client, Opcode::SetWithMeta, "loses", Meta::of(4, 900));
        assert_eq!(lost.status, Status::KeyExists, "{policy:?}");
        call(&mut client, Opcode::SetWithMeta, "wins", Meta::of(6, 400)).ok();
        call(&mut client, Opcode::DelWithMeta, "goes", Meta::of(6, 400)).ok();
        let mut extras = [0; 12];
        extras[3] = 2;
        let told = client.request(Opcode::ReturnMeta).key("told");
        let told = client.call(&told.extras(&extras).value(b"v"));
        assert_eq!(told.status, Status::KeyExists, "{policy:?}");
        let full = policy == kedge_bucket::EvictionPolicy::FullEviction;
        assert_eq!(
            waited(&bucket) - before,
            if full { 4 } else { 0 },
            "{policy:?}"
        );
        assert_eq!(meta_of(&mut client, "loses").1, 500);
        assert_eq!(meta_of(&mut client, "wins").1, 400);
        let (gone, cas) = meta_of(&mut client, "goes");
        assert_eq!((gone.deleted, gone.rev_seqno.get(), cas), (true, 6, 400));
        assert_eq!(figure(&bucket, "curr_items"), 3);
    }
}

#[test]
fn with_meta_ignores_durability_min_level() {
    let kedge = Kedge::start();
    let bucket = kedge.server().registry().get("default").unwrap();
    let change = BucketChange {
        durability_min_level: Some(DurabilityLevel::PersistToMajority as u8),
        max_ttl_secs: Some(100),
        ..BucketChange::default()
    };
    bucket.update(&change).unwrap();
    let mut client = kedge.client();
    call(&mut client, Opcode::SetWithMeta, "k", Meta::of(1, 5)).ok();
    assert_eq!(
        bucket
            .vbucket_seqnos(None, false, None)
            .iter()
            .map(|(_, seqno)| seqno.get())
            .sum::<u64>(),
        1
    );
    let (meta, _) = meta_of(&mut client, "k");
    let left = meta.expiry - now_secs();
    assert!(
        (1..=100).contains(&left),
        "the longest time to live holds: {left}"
    );
    let durable = frame(&mut client, Opcode::SetWithMeta, "k", Meta::of(2, 5));
    let durable = client.call(&durable.durable(DurabilityLevel::Majority));
    assert_eq!(durable.status, Status::Invalid);
}

#[test]
fn return_meta_returns_the_new_metadata() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let mut told = |kind: u8, key: &str, value: &[u8], cas: u64| {
        let extras = [0, 0, 0, kind, 0, 0, 0, 7, 0, 0, 3, 232];
        let frame = client.request(Opcode::ReturnMeta).key(key).cas(cas);
        let reply = client.call(&frame.extras(&extras).value(value));
        let meta = ReturnMetaReply::decode(&reply.extras).ok();
        (reply.status, meta, reply.cas)
    };
    let (status, meta, cas) = told(1, "k", b"v", 0);
    let meta = meta.unwrap();
    assert_eq!(
        (status, meta.flags, meta.rev_seqno.get()),
        (Status::Success, 7, 1)
    );
    let left = meta.expiry - now_secs();
    assert!((1..=1_000).contains(&left), "{left}");
    assert_eq!(told(2, "k", b"v", 0).0, Status::KeyExists);
    assert_eq!(told(1, "k", b"w", cas + 1).0, Status::KeyExists);
    let (_, meta, cas) = told(1, "k", b"w", cas);
    assert_eq!(meta.unwrap().rev_seqno.get(), 2);
    assert_eq!(told(4, "k", b"", 0).0, Status::Invalid);
    let (status, meta, _) = told(3, "k", b"", cas);
    let meta = meta.unwrap();
    assert_eq!(
        (status, meta.flags, meta.rev_seqno.get()),
        (Status::Success, 0, 3)
    );
    assert_eq!(told(3, "k", b"", 0).0, Status::KeyNotFound);
    assert_eq!(told(2, "k", b"v", 0).1.unwrap().rev_seqno.get(), 4);

    // The same after a sync.
    let bucket = kedge.server().registry().get("default").unwrap();
    let change = BucketChange {
        durability_min_level: Some(DurabilityLevel::PersistToMajority as u8),
        ..BucketChange::default()
    };
    bucket.update(&change).unwrap();
    let (status, meta, cas) = told(1, "k", b"x", 0);
    assert_eq!(
        (status, meta.unwrap().rev_seqno.get()),
        (Status::Success, 5)
    );
    let (status, meta, _) = told(3, "k", b"", cas);
    assert_eq!(
        (status, meta.unwrap().rev_seqno.get()),
        (Status::Success, 6)
    );
}

#[test]
fn with_meta_checks_privileges() {
    let kedge = Kedge::start();
    for (user, expected) in [("root", Status::Success), ("reader", Status::AccessDenied)] {
        let mut client = kedge.connect();
        client.hello(SDK_FEATURES);
        client.log_in(user, PASSWORD);
        client.select("default");
        let reply = call(&mut client, Opcode::SetWithMeta, user, Meta::of(1, 5));
        assert_eq!(reply.status, expected, "{user}");
    }
}

#[test]
fn with_meta_tombstone_has_no_body() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let with_value = frame(&mut client, Opcode::DelWithMeta, "k", Meta::of(1, 5));
    let reply = client.call(&with_value.value(b"body"));
    assert_eq!(reply.status, Status::Invalid);
}
