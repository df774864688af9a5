//! Tests of collections and manifests.

use crate::tools::{at, done, durable, log_all, results, sent, setup, store, vbucket, write};
use kedge_types::DurabilityLevel::PersistToMajority;
use kedge_types::{Collection, CollectionId, DocKey, Manifest, ManifestUid, Status, VbUuid};
use kedge_vbucket::{
    Change, DcpSnapshot, FailoverTable, PersistenceMode, SnapshotKind, StateChange, StoreMode,
    SystemEvent, SystemEventKind, VBucket, VbState,
};

/// Returns the default manifest with collections of these ids in the default scope.
pub(crate) fn manifest(uid: u64, ids: &[u32]) -> Manifest {
    let mut manifest = Manifest {
        uid: ManifestUid(uid),
        ..Manifest::default()
    };
    manifest.scopes[0]
        .collections
        .extend(ids.iter().map(|id| Collection {
            id: CollectionId(*id),
            name: format!("c{id}"),
            max_ttl: None,
            history: false,
        }));
    manifest
}

fn key(collection: u32) -> DocKey {
    DocKey::new(CollectionId(collection), b"k").unwrap()
}

fn set(vb: &mut VBucket, collection: u32) -> Result<(), Status> {
    let key = key(collection);
    store(vb, at(1), &write(&key), StoreMode::Set, b"v").map(|outcome| {
        done(outcome);
    })
}

fn get(vb: &mut VBucket, collection: u32) -> Result<Vec<u8>, Status> {
    let found = vb
        .at(at(1))
        .get(&key(collection), |it| it.item.value().to_vec());
    found.map(done)
}

#[test]
fn commands_fail_with_unknown_collection_unless_it_is_open() {
    let mut vb = vbucket();
    assert_eq!(set(&mut vb, 8), Err(Status::UnknownCollection));
    vb.follow_manifest(at(1), &manifest(1, &[8]));
    assert_eq!(set(&mut vb, 8), Ok(()));
    assert_eq!(get(&mut vb, 8).unwrap(), b"v");
    assert_eq!(set(&mut vb, 0), Ok(()));
    let items = |vb: &VBucket| -> Vec<(u32, u64)> {
        let all = vb.collections().open().iter();
        all.map(|open| (open.id.get(), open.items)).collect()
    };
    assert_eq!(items(&vb), [(0, 1), (8, 1)]);
    vb.follow_manifest(at(1), &manifest(2, &[9]));
    assert_eq!(get(&mut vb, 8), Err(Status::UnknownCollection));
    assert_eq!(set(&mut vb, 8), Err(Status::UnknownCollection));
    assert_eq!(get(&mut vb, 9), Err(Status::KeyNotFound));
    assert_eq!(items(&vb), [(0, 1), (9, 0)]);
    // A manifest older than the current one changes nothing.
    vb.follow_manifest(at(1), &manifest(1, &[8]));
    assert_eq!(set(&mut vb, 8), Err(Status::UnknownCollection));
    assert_eq!(vb.collections().uid(), ManifestUid(2));
}

fn kinds(changes: &[Change]) -> Vec<(SystemEventKind, u32)> {
    let events = changes.iter().filter_map(|change| match change {
        Change::System(item) => SystemEvent::of_item(item),
        _ => None,
    });
    events
        .map(|event| (event.kind, event.collection.get()))
        .collect()
}

/// Returns the open collections and their numbers of documents.
fn items(vb: &VBucket) -> Vec<(u32, u64)> {
    let all = vb.collections().open().iter();
    all.map(|open| (open.id.get(), open.items)).collect()
}

#[test]
fn manifest_events_are_queued_once_replayed_and_replicated() {
    let mut vb = vbucket();
    vb.follow_manifest(at(1), &manifest(1, &[8, 9]));
    for id in [0, 8, 9] {
        set(&mut vb, id).unwrap();
    }
    vb.follow_manifest(at(1), &manifest(2, &[9]));
    vb.follow_manifest(at(1), &manifest(2, &[9]));
    // A higher uid with the same content produces no events.
    vb.follow_manifest(at(1), &manifest(5, &[9]));
    assert_eq!(vb.high_seqno().get(), 6);
    let changes = log_all(&mut vb);
    let expected = [
        (SystemEventKind::CollectionCreated, 8),
        (SystemEventKind::CollectionCreated, 9),
        (SystemEventKind::CollectionDropped, 8),
    ];
    assert_eq!(kinds(&changes), expected);

    let mut again = vbucket();
    for change in &changes {
        again.recovery().replay(change.clone()).unwrap();
    }
    again.recovery().finish(None).unwrap();
    assert_eq!(items(&again), [(0, 1), (9, 1)]);
    assert_eq!(get(&mut again, 8), Err(Status::UnknownCollection));
    assert_eq!(again.collections().uid(), ManifestUid(2));
    again.follow_manifest(at(2), &manifest(5, &[9]));
    assert_eq!(again.high_seqno(), vb.high_seqno(), "it has all of it");

    let mut replica = VBucket::new(setup(PersistenceMode::LogThenFile));
    replica.set_state(StateChange::to(VbState::Replica, VbUuid(1)));
    replica
        .begin_stream(FailoverTable::new(VbUuid(0xabc)))
        .unwrap();
    let snapshot = DcpSnapshot::new(SnapshotKind::Memory, 1.into(), 6.into());
    replica.begin_snapshot(snapshot).unwrap();
    replica.follow_manifest(at(1), &manifest(7, &[10]));
    for received in changes.iter().filter_map(sent) {
        replica.receive(at(1), received).unwrap();
    }
    assert_eq!(items(&replica), [(0, 1), (9, 1)], "its active decides");
    assert_eq!(kinds(&log_all(&mut replica)), expected);
}

#[test]
fn dropped_collection_is_swept_shard_by_shard_and_counted_once() {
    let mut vb = vbucket();
    vb.follow_manifest(at(1), &manifest(1, &[8]));
    for id in [0, 8] {
        set(&mut vb, id).unwrap();
    }
    log_all(&mut vb);
    let empty = vb.bytes();
    assert!(!vb.documents().has_dropped());
    vb.follow_manifest(at(1), &manifest(2, &[]));
    assert_eq!(vb.documents().count(), 2);
    let (mut visits, mut swept) = (0, 0);
    while vb.documents().has_dropped() {
        swept += vb.sweep_dropped();
        visits += 1;
    }
    assert_eq!(swept, 1);
    assert_eq!(visits, vb.table().shard_count());
    assert_eq!(vb.documents().count(), 1);
    assert_eq!(get(&mut vb, 0).unwrap(), b"v");
    assert!(vb.bytes() < empty + 1_000);
    // Documents that are not applied are removed too, and are counted once.
    let batch = vb.store_mut().begin_apply().unwrap();
    let (history, upto) = (batch.history(), batch.upto());
    vb.store_mut().on_applied(history, upto);
    drop(vb.store_mut().end_apply(batch));
    log_all(&mut vb);
    assert_eq!(vb.unapplied().items, 1, "the drop");
}

#[test]
fn sync_write_of_a_dropped_collection_aborts_in_order() {
    let mut vb = vbucket();
    vb.follow_manifest(at(1), &manifest(1, &[8]));
    let keys = [key(0), key(8), key(9)];
    for (cookie, key) in (1..).zip(&keys[..2]) {
        let write = durable(key, PersistToMajority, cookie);
        store(&mut vb, at(1), &write, StoreMode::Set, b"v").unwrap();
    }
    vb.follow_manifest(at(1), &manifest(2, &[]));
    assert_eq!(results(&mut vb), [(2, Err(Status::UnknownCollection))]);
    // The first prepare is not persisted, so no later one is completed.
    let changes = log_all(&mut vb);
    assert_eq!(changes.len(), 4);
    let ends = log_all(&mut vb);
    assert!(
        matches!(&ends[..], [Change::Commit { .. }, Change::Abort { .. }]),
        "{ends:?}"
    );
    assert_eq!(get(&mut vb, 0).unwrap(), b"v");
    let mut again = vbucket();
    for change in changes.into_iter().chain(ends) {
        again.recovery().replay(change).unwrap();
    }
    again.recovery().finish(None).unwrap();
    assert_eq!(items(&again), [(0, 1)]);
}
