//! Tests of range scans.

use std::collections::BTreeMap;

use kedge_protocol::binary::commands::range_scan::{
    Bound, RangeScanCancel, RangeScanContinue, RangeScanCreate, ScanDocument, ScanId, ScanKind,
    SnapshotRequirements, decode_scan_keys,
};
use kedge_protocol::binary::{Feature, Features, Opcode, RequestWriter};
use kedge_types::{CollectionId, Datatype, Seqno, Status, VbId, VbUuid};

use crate::client::{Client, Reply, SDK_FEATURES};
use crate::evicted::{POLICIES, evict_all, figure, start};
use crate::server::{Kedge, PASSWORD, Setup, USER};
use crate::with_meta::Meta;
use crate::xattrs::whole;

/// A server whose bucket has one vBucket.
pub(crate) fn kedge() -> Kedge {
    let mut setup = Setup::default();
    setup.bucket.vbuckets = 1;
    Kedge::with(setup)
}

pub(crate) fn set(client: &mut Client, key: &str, value: &[u8]) -> Reply {
    let mut frame = client.request(Opcode::Set).store(key, value);
    frame.vb = 0;
    client.call(&frame).ok()
}

pub(crate) fn range(start: &str, end: &str) -> RangeScanCreate {
    let bound = |key: &str| Bound {
        key: key.as_bytes().to_vec(),
        exclusive: false,
    };
    RangeScanCreate {
        collection: CollectionId::DEFAULT,
        key_only: true,
        include_xattrs: false,
        kind: ScanKind::Range {
            start: bound(start),
            end: bound(end),
        },
        snapshot: None,
        name: Some("test".to_owned()),
    }
}

fn sampling(seed: u64, samples: u64) -> RangeScanCreate {
    RangeScanCreate {
        kind: ScanKind::Sampling { seed, samples },
        ..range("a", "b")
    }
}

pub(crate) fn create_in(client: &mut Client, vb: u16, wanted: &RangeScanCreate) -> Reply {
    let mut bytes = Vec::new();
    let writer = RequestWriter {
        vb: VbId(vb),
        ..RequestWriter::new(Opcode::RangeScanCreate)
    };
    wanted.encode(&writer, &mut bytes);
    client.send(&bytes);
    client.reply()
}

/// The id of a scan, or the status of the failure.
pub(crate) fn create(client: &mut Client, wanted: &RangeScanCreate) -> Result<ScanId, Status> {
    let reply = create_in(client, 0, wanted);
    match reply.status {
        Status::Success => Ok(ScanId(reply.value.try_into().unwrap())),
        other => Err(other),
    }
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Limits {
    pub(crate) items: u32,
    pub(crate) ms: u32,
    pub(crate) bytes: u32,
}

/// All replies to a continue; the last one has its status.
pub(crate) fn go_on(client: &mut Client, id: ScanId, limits: Limits) -> Vec<Reply> {
    let mut bytes = Vec::new();
    RangeScanContinue {
        id,
        items_max: limits.items,
        time_ms_max: limits.ms,
        bytes_max: limits.bytes,
    }
    .encode(&RequestWriter::new(Opcode::RangeScanContinue), &mut bytes);
    client.send(&bytes);
    let mut replies = Vec::new();
    loop {
        replies.push(client.reply());
        if replies.last().unwrap().status != Status::Success {
            return replies;
        }
    }
}

pub(crate) fn cancel(client: &mut Client, id: ScanId) -> Status {
    let mut bytes = Vec::new();
    RangeScanCancel { id }.encode(&RequestWriter::new(Opcode::RangeScanCancel), &mut bytes);
    client.send(&bytes);
    client.reply().status
}

pub(crate) fn keys_of(replies: &[Reply]) -> Vec<String> {
    let mut keys = Vec::new();
    for reply in replies {
        assert_eq!(reply.extras, [0; 4]);
        for key in decode_scan_keys(&reply.value).unwrap() {
            keys.push(String::from_utf8(key.to_vec()).unwrap());
        }
    }
    keys
}

/// All results of a scan, continued with these limits.
pub(crate) fn scan(client: &mut Client, wanted: &RangeScanCreate, limits: Limits) -> Vec<Reply> {
    let id = create(client, wanted).unwrap();
    let mut replies = Vec::new();
    loop {
        replies.extend(go_on(client, id, limits));
        match replies.last().unwrap().status {
            Status::RangeScanComplete => return replies,
            other => assert_eq!(other, Status::RangeScanMore),
        }
    }
}

#[test]
fn range_scan_returns_keys_in_order_within_limits() {
    let kedge = kedge();
    let mut client = kedge.client();
    let names: Vec<String> = (0..100).map(|n| format!("k{n:03}")).collect();
    names
        .iter()
        .for_each(|name| drop(set(&mut client, name, b"v")));
    let mut delete = client.request(Opcode::Delete).key("k050");
    delete.vb = 0;
    client.call(&delete).ok();
    let mut live = names;
    live.retain(|name| name != "k050");

    let none = Limits::default();
    assert_eq!(keys_of(&scan(&mut client, &range("a", "z"), none)), live);
    assert_eq!(
        keys_of(&scan(&mut client, &range("k010", "k019"), none)),
        live[10..20]
    );
    let mut open = range("k010", "k019");
    if let ScanKind::Range { start, end } = &mut open.kind {
        (start.exclusive, end.exclusive) = (true, true);
    }
    assert_eq!(keys_of(&scan(&mut client, &open, none)), live[11..19]);

    // Each limit alone; the results are complete and in order.
    let seven = Limits { items: 7, ..none };
    let by_items = scan(&mut client, &range("a", "z"), seven);
    assert_eq!(keys_of(&by_items), live);
    let counts: Vec<usize> = by_items
        .iter()
        .map(|it| keys_of(std::slice::from_ref(it)).len())
        .collect();
    assert_eq!(counts, [&[7; 14][..], &[1]].concat());
    let bytes = Limits { bytes: 1, ..none };
    let by_bytes = scan(&mut client, &range("a", "z"), bytes);
    assert_eq!((keys_of(&by_bytes), by_bytes.len()), (live.clone(), 99));
    let time = Limits { ms: 1, ..none };
    assert_eq!(keys_of(&scan(&mut client, &range("a", "z"), time)), live);
    // A limit that is reached at the last key does not hide the end.
    let all = go_on_first(&mut client, Limits { items: 99, ..none });
    assert_eq!(all.last().unwrap().status, Status::RangeScanComplete);

    for empty in [range("a", "b"), range("k050", "k050"), range("z", "a")] {
        assert_eq!(create(&mut client, &empty), Err(Status::KeyNotFound));
    }
    let bucket = kedge.server().registry().get("default").unwrap();
    assert_eq!(
        figure(&bucket, "ep_range_scans_open"),
        0,
        "complete scans are gone"
    );
}

fn go_on_first(client: &mut Client, limits: Limits) -> Vec<Reply> {
    let id = create(client, &range("a", "z")).unwrap();
    go_on(client, id, limits)
}

#[test]
fn range_scan_returns_documents_with_metadata() {
    for policy in POLICIES {
        let (kedge, bucket) = start(policy, 256 << 20);
        let mut client = kedge.client();
        let value = |n: usize| vec![b'a' + (n % 26) as u8; 10_000];
        let mut expected = BTreeMap::new();
        let vb = 3;
        for n in 0..1_000 {
            let key = format!("k{n:04}");
            let mut frame = client.request(Opcode::Set).store(&key, &value(n));
            frame.vb = vb;
            frame.extras = [&7_u32.to_be_bytes()[..], &[0; 4]].concat();
            let stored = client.call(&frame).ok();
            expected.insert(key, (stored.cas, stored.token().seqno));
        }
        evict_all(&bucket);
        let wanted = RangeScanCreate {
            key_only: false,
            ..range("a", "z")
        };
        let made = create_in(&mut client, vb, &wanted).ok();
        let id = ScanId(made.value.try_into().unwrap());
        let mut found = 0;
        let mut continues = 0;
        let mut parts = 0;
        loop {
            let mut bytes = Vec::new();
            let writer = RequestWriter {
                vb: VbId(vb),
                ..RequestWriter::new(Opcode::RangeScanContinue)
            };
            RangeScanContinue {
                id,
                items_max: 0,
                time_ms_max: 0,
                bytes_max: 0,
            }
            .encode(&writer, &mut bytes);
            client.send(&bytes);
            continues += 1;
            let last = loop {
                let reply = client.reply();
                parts += 1;
                assert_eq!(reply.extras, [0, 0, 0, 1]);
                for document in ScanDocument::decode_all(&reply.value).unwrap() {
                    let key = String::from_utf8(document.key.to_vec()).unwrap();
                    let (next, (cas, seqno)) = expected.pop_first().unwrap();
                    assert_eq!(
                        (&key, document.cas.get(), document.seqno),
                        (&next, cas, seqno)
                    );
                    assert_eq!((document.flags, document.expiry.0), (7, 0));
                    assert_eq!(document.datatype, Datatype::RAW);
                    assert_eq!(document.value, value(found));
                    found += 1;
                }
                if reply.status != Status::Success {
                    break reply.status;
                }
            };
            if last == Status::RangeScanComplete {
                break;
            }
            assert_eq!(last, Status::RangeScanMore);
        }
        assert!(expected.is_empty());
        // 10 MB: more than one continue returns, and each in several parts.
        assert_eq!(continues, 2, "{policy:?}");
        assert!(parts > 20, "{parts}");
        assert_eq!(figure(&bucket, "ep_range_scan_items"), 1_000);
    }
}

#[test]
fn range_scan_returns_xattrs_on_request() {
    let kedge = kedge();
    let mut client = kedge.client();
    let body = br#"{"a":1}"#;
    let value = whole(&[("_sync", "1"), ("mine", "2")], body);
    for (key, datatype, value) in [
        ("a", Datatype::XATTR, &value[..]),
        ("b", Datatype::RAW, body),
    ] {
        let frame = client.request(Opcode::SetWithMeta).key(key).value(value);
        let frame = frame.extras(&Meta::of(1, 1 << 16).extras());
        let mut frame = frame.datatype(datatype);
        frame.vb = 0;
        client.call(&frame).ok();
    }
    let both = Datatype::XATTR.union(Datatype::JSON);
    let documents = |client: &mut Client, id| {
        let replies = go_on(client, id, Limits::default());
        let found = ScanDocument::decode_all(&replies[0].value).unwrap();
        let found = found.iter().map(|it| (it.datatype, it.value.to_vec()));
        found.collect::<Vec<_>>()
    };
    let cut = [
        (Datatype::JSON, body.to_vec()),
        (Datatype::JSON, body.to_vec()),
    ];
    let with = [(both, value), cut[1].clone()];
    for (include_xattrs, expected) in [(false, &cut), (true, &with)] {
        let wanted = RangeScanCreate {
            key_only: false,
            include_xattrs,
            ..range("a", "z")
        };
        let id = create(&mut client, &wanted).unwrap();
        assert_eq!(documents(&mut client, id), expected, "{include_xattrs}");
    }
    let wanted = RangeScanCreate {
        key_only: false,
        include_xattrs: true,
        ..range("a", "z")
    };
    // A client without the feature cannot request them, and does not get those of another client's scan.
    let mut plain = kedge.connect();
    plain.hello(SDK_FEATURES.without(Feature::Xattr));
    plain.log_in(USER, PASSWORD);
    plain.select("default");
    assert_eq!(create(&mut plain, &wanted), Err(Status::NotSupported));
    let id = create(&mut client, &wanted).unwrap();
    assert_eq!(documents(&mut plain, id), cut);
}

#[test]
fn range_scan_is_a_snapshot() {
    let kedge = kedge();
    let mut client = kedge.client();
    for name in ["a", "b", "c", "d"] {
        set(&mut client, name, b"old");
    }
    let id = create(&mut client, &range("a", "z")).unwrap();
    let one = Limits {
        items: 1,
        ..Limits::default()
    };
    assert_eq!(keys_of(&go_on(&mut client, id, one)), ["a"]);
    set(&mut client, "bb", b"new");
    let mut delete = client.request(Opcode::Delete).key("c");
    delete.vb = 0;
    client.call(&delete).ok();
    let bucket = kedge.server().registry().get("default").unwrap();
    bucket.persistence().apply().unwrap();
    let rest = go_on(&mut client, id, Limits::default());
    assert_eq!(keys_of(&rest), ["b", "c", "d"]);
    let after = scan(&mut client, &range("a", "z"), Limits::default());
    assert_eq!(keys_of(&after), ["a", "b", "bb", "d"]);
}

#[test]
fn sampling_scan_returns_the_requested_size() {
    let kedge = kedge();
    let mut client = kedge.client();
    assert_eq!(
        create(&mut client, &sampling(1, 5)),
        Err(Status::KeyNotFound)
    );
    let names: Vec<String> = (0..200).map(|n| format!("k{n:03}")).collect();
    names
        .iter()
        .for_each(|name| drop(set(&mut client, name, b"v")));
    let mut sample = |seed, count| {
        let found = scan(&mut client, &sampling(seed, count), Limits::default());
        let keys = keys_of(&found);
        assert!(keys.is_sorted() && keys.iter().all(|key| names.contains(key)));
        keys
    };
    let first = sample(1, 20);
    assert_eq!(first.len(), 20);
    // SDKs choose seeds of 64 bits; those of 2^32 and more were refused.
    for (seed, low) in [(1 << 32, 0), (u64::MAX, u64::from(u32::MAX))] {
        let sampled = sample(seed, 20);
        assert_eq!(sampled.len(), 20);
        assert_ne!(sampled, sample(low, 20), "all of the seed counts");
    }
    assert_eq!(sample(1, 20), first, "the seed decides");
    assert_ne!(sample(2, 20), first);
    assert_eq!(sample(1, 1_000).len(), 200, "all, if there are fewer");
}

#[test]
fn snapshot_requirements_are_met_or_refused() {
    let kedge = kedge();
    let mut client = kedge.client();
    let token = set(&mut client, "a", b"1").token();
    let with = |uuid: VbUuid, seqno: u64, exists, timeout_ms| RangeScanCreate {
        snapshot: Some(SnapshotRequirements {
            vb_uuid: uuid,
            seqno: Seqno(seqno),
            seqno_exists: exists,
            timeout_ms,
        }),
        ..range("a", "z")
    };
    let uuid = token.vb_uuid;
    // An acknowledged write need not be on disk yet: the scan waits for it.
    for n in 2..20 {
        let seqno = set(&mut client, &format!("k{n}"), b"1").token().seqno.get();
        let wanted = with(uuid, seqno, true, Some(20_000));
        let found = scan(&mut client, &wanted, Limits::default());
        assert_eq!(keys_of(&found).len(), n);
    }
    let high = set(&mut client, "a", b"2").token().seqno.get();
    let soon = Some(10);
    create(&mut client, &with(uuid, high, true, Some(20_000))).unwrap();
    for (wanted, status) in [
        (
            with(VbUuid(uuid.get() + 1), 1, false, None),
            Status::VbUuidNotEqual,
        ),
        (with(uuid, high + 1, false, None), Status::TemporaryFailure),
        (with(uuid, high + 1, false, soon), Status::TemporaryFailure),
        (with(uuid, 1, true, None), Status::NotStored),
    ] {
        assert_eq!(create(&mut client, &wanted), Err(status), "{wanted:?}");
    }
    assert!(create(&mut client, &with(uuid, 1, false, None)).is_ok());
}

#[test]
fn range_scan_errors() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    set(&mut client, "a", b"1");
    set(&mut client, "b", b"1");
    let unknown = ScanId([7; 16]);
    let last = |replies: Vec<Reply>| replies.last().unwrap().status;
    let none = Limits::default();
    assert_eq!(last(go_on(&mut client, unknown, none)), Status::KeyNotFound);
    assert_eq!(cancel(&mut client, unknown), Status::KeyNotFound);
    let id = create(&mut client, &range("a", "z")).unwrap();
    let stats = kedge.server().registry().get("default").unwrap();
    assert_eq!(figure(&stats, "ep_range_scans_open"), 1);
    let frame = client.request(Opcode::Stat);
    let frame = crate::client::Frame {
        key: b"range-scans".to_vec(),
        ..frame
    };
    client.send(&frame.bytes());
    let mut told = BTreeMap::new();
    loop {
        let reply = client.reply().ok();
        if reply.key.is_empty() {
            break;
        }
        told.insert(String::from_utf8(reply.key.clone()).unwrap(), reply.text());
    }
    let hex: String = id.0.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(told["num_open"], "1");
    assert_eq!(told[&format!("vb_0:{hex}:name")], "test");
    assert_eq!(told[&format!("vb_0:{hex}:type")], "range");
    assert_eq!(told[&format!("vb_0:{hex}:state")], "idle");
    assert_eq!(cancel(&mut client, id), Status::Success);
    assert_eq!(last(go_on(&mut client, id, none)), Status::KeyNotFound);

    let elsewhere = create_in(&mut client, 99, &range("a", "z"));
    assert_eq!(elsewhere.status, Status::NotMyVbucket);
    let other = RangeScanCreate {
        collection: CollectionId(9),
        ..range("a", "z")
    };
    assert_eq!(create(&mut client, &other), Err(Status::UnknownCollection));

    // A writer may not read.
    for (user, allowed) in [(USER, true), ("reader", true), ("writer", false)] {
        let mut client = kedge.connect();
        client.hello(SDK_FEATURES);
        client.log_in(user, PASSWORD);
        client.select("default");
        let made = create(&mut client, &range("a", "z"));
        if allowed {
            assert_eq!(
                cancel(&mut client, made.unwrap()),
                Status::Success,
                "{user}"
            );
        } else {
            assert_eq!(made, Err(Status::AccessDenied), "{user}");
        }
    }
}

#[test]
fn vbucket_state_change_ends_its_scans() {
    let kedge = kedge();
    let mut client = kedge.client();
    set(&mut client, "a", b"1");
    set(&mut client, "b", b"1");
    let id = create(&mut client, &range("a", "z")).unwrap();
    let state = |client: &mut Client, state: u8| {
        let frame = client.request(Opcode::SetVbucket).extras(&[state]);
        client.call(&frame).ok();
    };
    let mut root = kedge.connect();
    root.hello(SDK_FEATURES);
    root.log_in("root", PASSWORD);
    root.select("default");
    state(&mut root, 2);
    let replies = go_on(&mut client, id, Limits::default());
    assert_eq!(replies[0].status, Status::NotMyVbucket);
    state(&mut root, 1);
    let replies = go_on(&mut client, id, Limits::default());
    assert_eq!(replies[0].status, Status::KeyNotFound, "it is gone");
    let found = scan(&mut client, &range("a", "z"), Limits::default());
    assert_eq!(keys_of(&found), ["a", "b"]);
}

#[test]
fn number_of_scans_is_limited() {
    use kedge_types::limits::RANGE_SCANS_MAX;
    let kedge = kedge();
    let mut client = kedge.client();
    set(&mut client, "a", b"1");
    let wanted = range("a", "z");
    let made: Vec<ScanId> = (0..RANGE_SCANS_MAX)
        .map(|_| create(&mut client, &wanted).unwrap())
        .collect();
    assert_eq!(create(&mut client, &wanted), Err(Status::Busy));
    assert_eq!(cancel(&mut client, made[5]), Status::Success);
    create(&mut client, &wanted).unwrap();
}

#[test]
fn range_scan_shows_documents_like_get() {
    let kedge = kedge();
    let mut client = kedge.client();
    let text = b"{\"text\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}";
    let packed = snap::raw::Encoder::new().compress_vec(text).unwrap();
    let mut frame = client.request(Opcode::Set).store("packed", &packed);
    frame.vb = 0;
    client.call(&frame.datatype(Datatype::SNAPPY)).ok();
    let mut gone = client.request(Opcode::Set).store("gone", b"1");
    (gone.vb, gone.extras) = (0, [&[0; 4][..], &1_000_000_000_u32.to_be_bytes()].concat());
    client.call(&gone).ok();
    let wanted = RangeScanCreate {
        key_only: false,
        ..range("a", "z")
    };
    let plain = Features::of(&[Feature::Json, Feature::Collections, Feature::Xerror]);
    for (features, datatype) in [
        (SDK_FEATURES, Datatype::JSON.union(Datatype::SNAPPY)),
        (plain, Datatype::JSON),
    ] {
        let mut client = kedge.connect();
        client.hello(features);
        client.log_in(USER, PASSWORD);
        client.select("default");
        let found = scan(&mut client, &wanted, Limits::default());
        let documents = ScanDocument::decode_all(&found[0].value).unwrap();
        assert_eq!(documents.len(), 1);
        let expected: &[u8] = if datatype == Datatype::JSON {
            text
        } else {
            &packed
        };
        assert_eq!(
            (documents[0].key, documents[0].datatype),
            (&b"packed"[..], datatype)
        );
        assert_eq!(documents[0].value, expected);
    }
}
