//! Tests of DCP streams of collections, and of system events.

use std::sync::Arc;

use kedge_types::{Collection, Manifest, ManifestUid, Scope, ScopeId};

use super::*;

/// Collections of these ids in the scope 9.
fn manifest(uid: u64, ids: &[u32]) -> Arc<Manifest> {
    let mut manifest = Manifest {
        uid: ManifestUid(uid),
        ..Manifest::default()
    };
    let collection = |id: &u32| Collection {
        id: CollectionId(*id),
        name: format!("c{id}"),
        max_ttl: None,
        history: false,
    };
    manifest.scopes.push(Scope {
        id: ScopeId(9),
        name: "shop".to_owned(),
        collections: ids.iter().map(collection).collect(),
    });
    Arc::new(manifest)
}

/// The frames that are neither a marker nor a NOOP.
fn changes(follower: &mut Follower, count: usize) -> Vec<Got> {
    let mut all = Vec::new();
    while all.len() < count {
        match follower.next() {
            Got::Marker(..) | Got::Noop(_) => {}
            got => all.push(got),
        }
    }
    all
}

fn set_in(client: &mut Client, collection: u8, key: &str) -> Status {
    let mut frame = client.request(Opcode::Set).store(key, b"v");
    frame.key[0] = collection;
    client.call(&frame).status
}

#[test]
fn stream_filter_selects_collections_and_their_events() {
    use DcpSystemEventKind::{CollectionBegan, CollectionDropped, ScopeCreated, ScopeDropped};
    for applied in [false, true] {
        let kedge = Kedge::start();
        let mut writer = kedge.client();
        let vb = VbId(3);
        let key = &keys_of(vb, 1)[0];
        assert_eq!(set_in(&mut writer, 8, key), Status::UnknownCollection);
        // Scope 1, collections 2 and 3; documents 4 to 6.
        bucket(&kedge)
            .collections()
            .set_manifest(manifest(1, &[8, 10]));
        for id in [0, 8, 10] {
            assert_eq!(set_in(&mut writer, id, key), Status::Success);
        }
        if applied {
            bucket(&kedge).persistence().apply().unwrap();
        }
        let ask = |name: &str, filter: &'static [u8]| {
            let mut follower = Follower::open(&kedge, name, &[]);
            let wanted = DcpStreamRequest {
                filter,
                ..request(0, 0)
            };
            match follower.ask(vb, wanted) {
                Got::Reply(_, Status::Success, _) => Ok(follower),
                Got::Reply(_, status, _) => Err(status),
                other => panic!("{other:?}"),
            }
        };
        let status = |filter| ask("refused", filter).err();
        assert_eq!(
            status(b"{\"collections\":[\"b\"]}"),
            Some(Status::UnknownCollection)
        );
        assert_eq!(status(b"{\"scope\":\"a\"}"), Some(Status::UnknownScope));
        assert_eq!(status(b"{\"uid\":\"2\"}"), Some(Status::TemporaryFailure));

        let began = |seqno, id: u32| Got::Event(seqno, CollectionBegan, format!("c{id}"), Some(id));
        let dropped = |seqno, id| Got::Event(seqno, CollectionDropped, String::new(), Some(id));
        let document = |seqno, id: u8| {
            let stored = [&[id], key.as_bytes()].concat();
            Got::Mutation(seqno, stored, b"v".to_vec())
        };
        let scope = || Got::Event(1, ScopeCreated, "shop".to_owned(), None);
        let mut whole = ask("whole", b"").unwrap();
        let there = [scope(), began(2, 8), began(3, 10)];
        let documents = [document(4, 0), document(5, 8), document(6, 10)];
        assert_eq!(changes(&mut whole, 6), [&there[..], &documents].concat());
        let mut one = ask("one", b"{\"collections\":[\"a\"],\"uid\":\"1\"}").unwrap();
        assert_eq!(changes(&mut one, 2), [began(3, 10), document(6, 10)]);
        let mut of_scope = ask("scope", b"{\"scope\":\"9\"}").unwrap();
        let expected = [&there[..], &documents[1..]].concat();
        assert_eq!(changes(&mut of_scope, 5), expected);
        let mut default = ask("default", b"{\"collections\":[\"0\"]}").unwrap();
        // The rest of the snapshot has no item for this filter.
        assert_eq!(changes(&mut default, 2), [document(4, 0), Got::Advanced(6)]);

        // Together, so that they are one snapshot: 8 is dropped at 7, 10 at 8, the scope stays.
        bucket(&kedge).collections().set_manifest(manifest(2, &[]));
        assert_eq!(set_in(&mut writer, 10, key), Status::UnknownCollection);
        assert_eq!(changes(&mut whole, 2), [dropped(7, 8), dropped(8, 10)]);
        assert_eq!(
            changes(&mut one, 2),
            [dropped(8, 10), Got::End(EndReason::FilterEmpty)]
        );
        assert_eq!(changes(&mut of_scope, 2), [dropped(7, 8), dropped(8, 10)]);
        bucket(&kedge)
            .collections()
            .set_manifest(Arc::new(Manifest {
                uid: ManifestUid(3),
                ..Manifest::default()
            }));
        let gone = || Got::Event(9, ScopeDropped, String::new(), None);
        assert_eq!(
            changes(&mut of_scope, 2),
            [gone(), Got::End(EndReason::FilterEmpty)]
        );
        assert_eq!(changes(&mut whole, 1), [gone()]);
    }
}

/// The vBucket of the documents of [`a_collection_on_disk`].
const VB: VbId = VbId(3);

/// A bucket with the scope at seqno 1, the collections at 2 and 3, documents of the collection 8 with the seqnos 23
/// down to 4 in key order, and one of another collection. All are in the file. Returns the keys.
fn a_collection_on_disk() -> (Kedge, Client, Vec<String>) {
    let kedge = Kedge::start();
    let mut writer = kedge.client();
    bucket(&kedge)
        .collections()
        .set_manifest(manifest(1, &[8, 10]));
    let mut keys = keys_of(VB, 20);
    keys.sort();
    for key in keys.iter().rev() {
        assert_eq!(set_in(&mut writer, 8, key), Status::Success);
    }
    assert_eq!(set_in(&mut writer, 10, &keys[0]), Status::Success);
    bucket(&kedge).persistence().apply().unwrap();
    (kedge, writer, keys)
}

fn began_8() -> Got {
    let name = "c8".to_owned();
    Got::Event(2, DcpSystemEventKind::CollectionBegan, name, Some(8))
}

fn document_of_8(seqno: u64, key: &str) -> Got {
    let stored = [&[8], key.as_bytes()].concat();
    Got::Mutation(seqno, stored, b"v".to_vec())
}

/// Opens a connection with these settings, and a stream of the collection 8 from the beginning.
fn follow_collection_8(kedge: &Kedge, settings: &[(&str, &str)]) -> Follower {
    let mut follower = Follower::open(kedge, "u", settings);
    let wanted = DcpStreamRequest {
        filter: b"{\"collections\":[\"8\"]}",
        ..request(0, 0)
    };
    let answer = follower.ask(VB, wanted);
    assert!(
        matches!(answer, Got::Reply(_, Status::Success, _)),
        "{answer:?}"
    );
    follower
}

#[test]
fn oso_backfill_sends_a_collection_in_key_order() {
    for (value, advances) in [("true", false), ("true_with_seqno_advanced", true)] {
        let (kedge, mut writer, keys) = a_collection_on_disk();
        let settings = [
            ("enable_out_of_order_snapshots", value),
            ("connection_buffer_size", "300"),
        ];
        let mut follower = follow_collection_8(&kedge, &settings);
        let mut acknowledged = 0;
        let mut next = |follower: &mut Follower| {
            let got = follower.next();
            let bytes = (follower.counted - acknowledged) as u32;
            acknowledged = follower.counted;
            follower.send(0, DcpBody::BufferAck(BufferAck { bytes }));
            got
        };
        let mut expected = vec![Got::Unordered(OsoSnapshot::Start), began_8()];
        let of_keys = (4..=23).rev().zip(&keys);
        expected.extend(of_keys.map(|(seqno, key)| document_of_8(seqno, key)));
        expected.extend(advances.then_some(Got::Advanced(24)));
        expected.push(Got::Unordered(OsoSnapshot::End));
        for expected in expected {
            assert_eq!(next(&mut follower), expected);
        }
        // The order continues.
        assert_eq!(set_in(&mut writer, 8, &keys[5]), Status::Success);
        assert_eq!(next(&mut follower), Got::Marker(25, 25));
        assert_eq!(next(&mut follower), document_of_8(25, &keys[5]));
        let figures = bucket(&kedge).figures();
        assert!(
            figures.contains(&("ep_dcp_oso_backfills", 1)),
            "{figures:?}"
        );
    }
}

#[test]
fn backfill_without_oso_is_in_seqno_order() {
    for settings in [&[][..], &[("enable_out_of_order_snapshots", "false")]] {
        let (kedge, mut writer, keys) = a_collection_on_disk();
        let mut follower = follow_collection_8(&kedge, settings);
        let mut expected = vec![began_8()];
        let of_seqnos = (4..=23).zip(keys.iter().rev());
        expected.extend(of_seqnos.map(|(seqno, key)| document_of_8(seqno, key)));
        // The snapshot has the other collection's document too.
        expected.push(Got::Advanced(24));
        assert_eq!(changes(&mut follower, expected.len()), expected);
        assert_eq!(set_in(&mut writer, 8, &keys[5]), Status::Success);
        assert_eq!(changes(&mut follower, 1), [document_of_8(25, &keys[5])]);
        let figures = bucket(&kedge).figures();
        for (name, count) in [("ep_dcp_oso_backfills", 0), ("ep_dcp_backfills", 1)] {
            assert!(figures.contains(&(name, count)), "{name}: {figures:?}");
        }
    }
}

#[test]
fn legacy_stream_ends_when_the_default_collection_is_dropped() {
    let kedge = Kedge::start();
    let vb = VbId(3);
    let key = &keys_of(vb, 1)[0];
    kedge.client().set(key, b"1").ok();
    let open = || {
        let features = FEATURES.without(Feature::Collections);
        let mut old = Follower::connect(&kedge, features, USER);
        assert_eq!(old.try_open("old"), Status::Success);
        old
    };
    let mut old = open();
    old.stream(vb, 0, 0);
    let document = Got::Mutation(1, key.as_bytes().to_vec(), b"1".to_vec());
    assert_eq!(changes(&mut old, 1), [document]);
    let mut without_default = Manifest {
        uid: ManifestUid(1),
        ..Manifest::default()
    };
    without_default.scopes[0].collections.clear();
    bucket(&kedge)
        .collections()
        .set_manifest(Arc::new(without_default));
    assert_eq!(changes(&mut old, 1), [Got::End(EndReason::FilterEmpty)]);
    let refused = open().ask(vb, request(0, 0));
    assert!(
        matches!(
            refused,
            Got::Reply(_, Status::UnknownCollection | Status::Invalid, _)
        ),
        "{refused:?}"
    );
}

#[test]
fn collection_setting_changes_are_sent_as_flatbuffers() {
    use DcpSystemEventKind::{CollectionBegan, CollectionModified, ScopeCreated};
    for applied in [false, true] {
        let kedge = Kedge::start();
        let bucket = bucket(&kedge);
        bucket.collections().set_manifest(manifest(1, &[8]));
        let mut changed = (*manifest(2, &[8])).clone();
        changed.scopes[1].collections[0].max_ttl = Some(60);
        bucket.collections().set_manifest(Arc::new(changed));
        if applied {
            bucket.persistence().apply().unwrap();
        }
        let told = |name: &str, settings: &[(&str, &str)], count| {
            let mut follower = Follower::open(&kedge, name, settings);
            follower.stream(VbId(3), 0, 0);
            changes(&mut follower, count)
        };
        let event = |seqno, kind, name: &str, id| Got::Event(seqno, kind, name.to_owned(), id);
        let as_flatbuffers = [
            event(1, ScopeCreated, "shop", None),
            event(2, CollectionBegan, "c8", None),
            event(3, CollectionModified, "c8", None),
        ];
        let settings = [("flatbuffers_system_events", "true")];
        assert_eq!(told("flat", &settings, 3), as_flatbuffers);
        let others = [
            event(1, ScopeCreated, "shop", None),
            event(2, CollectionBegan, "c8", Some(8)),
            Got::Advanced(3),
        ];
        assert_eq!(told("plain", &[], 3), others);
    }
}
