//! Collections in files: local documents that follow the events, statistics that come and go, and documents that a
//! compaction removes.

use kedge_disk::{Disk, SimDisk};
use kedge_storage::{FileRecordKind, Storage};
use kedge_types::{Cas, CollectionId, ManifestUid, ScopeId, Seqno};
use kedge_vbucket::{FileChange, SystemEvent, SystemEventKind};

use crate::support::{VB, abort, audit, dir, document, open, prepare, state};
use crate::upkeep::{Hooks, keep_all};

pub(crate) fn event(seqno: u64, kind: SystemEventKind, collection: u32) -> FileChange {
    let event = SystemEvent {
        kind,
        uid: ManifestUid(seqno),
        scope: ScopeId(9),
        collection: CollectionId(collection),
        name: if kind.is_drop() { "" } else { "fruit" }.to_owned(),
        max_ttl: (!kind.is_drop() && !kind.is_of_scope()).then_some(7),
        history: false,
        start: Seqno(0),
    };
    FileChange::Document(event.item(Cas(seqno), Seqno(seqno)))
}

pub(crate) fn key(collection: u8, n: u64) -> Vec<u8> {
    [&[collection], format!("key-{n}").as_bytes()].concat()
}

fn commit(storage: &Storage, items: &[FileChange], prepared: u64, completed: u64) {
    let high = items.last().unwrap().item().seqno().get();
    let mut now = state(1, high);
    (now.prepared, now.completed) = (Seqno(prepared), Seqno(completed));
    storage.commit(VB, items, &now, 1).unwrap();
}

/// Returns the ids of the open collections with their documents, and the number of documents of all.
fn loaded(storage: &Storage) -> (Vec<(u32, u64)>, u64) {
    let loaded = storage.load(VB).unwrap().unwrap();
    let open = loaded.collections.open.iter();
    let open = open.map(|open| (open.id.get(), open.items));
    (open.collect(), loaded.documents)
}

/// Returns the keys of documents, prepares and aborts.
fn keys(storage: &Storage) -> Vec<Vec<u8>> {
    let scan = storage.scan(VB, .., true).unwrap().unwrap();
    let records = scan.map(Result::unwrap);
    let others = records.filter(|record| record.kind() != FileRecordKind::SystemEvent);
    others.map(|record| record.key().to_vec()).collect()
}

fn compact(storage: &Storage) {
    let compacted = storage
        .compact(VB, &keep_all(), &mut Hooks::default())
        .unwrap();
    assert_eq!(compacted.unwrap().not_understood, 0);
}

#[test]
fn local_documents_follow_system_events_and_compaction_erases_dropped_collections() {
    let disk = SimDisk::new(1);
    disk.create_dir_all(dir()).unwrap();
    let mut storage = open(&disk).unwrap();
    let mut items = vec![
        event(1, SystemEventKind::ScopeCreated, 0),
        event(2, SystemEventKind::CollectionCreated, 8),
    ];
    items.extend((3..=10).map(|n| document(n, &key(8, n), b"value")));
    items.extend((11..=15).map(|n| document(n, &key(0, n), b"value")));
    items.push(prepare(16, &key(8, 3), b"open"));
    commit(&storage, &items, 16, 0);
    audit(&disk, VB);
    for _ in 0..2 {
        assert_eq!(loaded(&storage), (vec![(0, 5), (8, 8)], 13));
        let collections = storage.load(VB).unwrap().unwrap().collections;
        assert_eq!(collections.uid, ManifestUid(2));
        assert_eq!(collections.open[1].max_ttl, Some(7));
        assert_eq!(collections.open[1].start, Seqno(2));
        assert_eq!(collections.open[1].high_seqno, Seqno(16));
        let scopes: Vec<u32> = collections.scopes.iter().map(|scope| scope.id.0).collect();
        assert_eq!(scopes, [0, 9]);
        drop(storage);
        storage = open(&disk).unwrap();
    }
    assert_eq!(keys(&storage).len(), 14);
    assert!(!storage.has_dropped(VB));

    // The prepare ends after its collection.
    let items = [
        event(17, SystemEventKind::CollectionDropped, 8),
        abort(18, &key(8, 3), 16),
    ];
    commit(&storage, &items, 16, 16);
    audit(&disk, VB);
    assert_eq!(loaded(&storage), (vec![(0, 5)], 5));
    assert!(storage.has_dropped(VB));
    assert_eq!(keys(&storage).len(), 6, "nobody reads them");
    compact(&storage);
    audit(&disk, VB);
    assert!(!storage.has_dropped(VB));
    let figures = storage.file_figures(VB).unwrap().unwrap();
    // Five documents and the scope's event; the drop's event and the abort.
    assert_eq!((figures.live, figures.deleted), (6, 2));
    assert_eq!(loaded(&storage), (vec![(0, 5)], 5));

    // A collection that is created and dropped within a batch, which has the newer of two events of a key.
    let items = [
        document(20, &key(9, 20), b"value"),
        event(21, SystemEventKind::CollectionDropped, 9),
        event(22, SystemEventKind::ScopeDropped, 0),
    ];
    commit(&storage, &items, 16, 16);
    audit(&disk, VB);
    assert!(storage.has_dropped(VB));
    compact(&storage);
    audit(&disk, VB);
    let figures = storage.file_figures(VB).unwrap().unwrap();
    assert_eq!((figures.live, figures.deleted), (5, 4));
    assert_eq!(loaded(&storage), (vec![(0, 5)], 5));
}

#[test]
fn system_events_survive_a_round_trip() {
    let disk = SimDisk::new(2);
    disk.create_dir_all(dir()).unwrap();
    let storage = open(&disk).unwrap();
    let items = [
        event(1, SystemEventKind::ScopeCreated, 0),
        event(2, SystemEventKind::CollectionCreated, 8),
        event(3, SystemEventKind::CollectionModified, 8),
        event(4, SystemEventKind::CollectionDropped, 10),
    ];
    commit(&storage, &items, 0, 0);
    for bodies in [false, true] {
        let scan = storage.scan(VB, .., bodies).unwrap().unwrap();
        let found: Vec<SystemEvent> = scan
            .map(|record| SystemEvent::of_item(&record.unwrap().item().unwrap()).unwrap())
            .collect();
        let expected = items.iter().map(|it| SystemEvent::of_item(it.item()));
        assert_eq!(found, expected.map(Option::unwrap).collect::<Vec<_>>());
    }
}
