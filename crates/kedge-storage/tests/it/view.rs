//! A file at one commit.

use kedge_disk::SimDisk;
use kedge_storage::{FileView, RecordScan, Storage};
use kedge_types::{CollectionId, Datatype, Seqno};
use kedge_vbucket::{Deletion, FileChange, Item, ItemMeta, PersistedState, SystemEventKind};

use crate::collections::{event, key};
use crate::support::{VB, document, documents, fill, meta, open, prepare, state, tombstone};

fn seqnos(storage: &Storage, view: &FileView, from: u64) -> Vec<u64> {
    let scan = storage.scan_view(view, Seqno(from).., true);
    let scan = scan.expect("a scan");
    scan.map(|record| record.expect("a record").meta().seqno.get())
        .collect()
}

#[test]
fn view_never_changes() {
    let storage = open(&SimDisk::new(1)).expect("open");
    assert!(storage.view(VB).expect("a look").is_none());
    fill(&storage, VB, 1..=3, 1);
    let view = storage.view(VB).expect("a look").expect("a file");
    fill(&storage, VB, 4..=5, 2);
    assert_eq!((view.high_seqno(), view.state()), (Seqno(3), &state(1, 3)));
    assert_eq!(seqnos(&storage, &view, 2), [2, 3]);
    storage.replace(VB, &state(2, 0), 3).expect("a new file");
    assert_eq!(seqnos(&storage, &view, 1), [1, 2, 3]);
    let empty = storage.view(VB).expect("a look").expect("a file");
    assert_eq!(seqnos(&storage, &empty, 0), [0_u64; 0]);
    storage.delete(VB).expect("deleted");
    assert_eq!(seqnos(&storage, &view, 3), [3]);
}

#[test]
fn commit_within_a_batch_is_not_consistent() {
    let storage = open(&SimDisk::new(2)).expect("open");
    let within = PersistedState {
        snap_end: Seqno(6),
        ..state(1, 0)
    };
    let is_consistent = |storage: &Storage| {
        let view = storage.view(VB).expect("a look").expect("a file");
        view.is_consistent()
    };
    storage
        .commit(VB, &documents(1..=3), &within, 1)
        .expect("commit");
    assert!(!is_consistent(&storage));
    storage
        .commit(VB, &documents(4..=6), &within, 2)
        .expect("commit");
    assert!(is_consistent(&storage));
}

#[test]
fn collection_scan_returns_events_and_documents_in_key_order() {
    let storage = open(&SimDisk::new(3)).expect("open");
    // Ids of two bytes: 0x80 0x02 is 0x100, and 0x81 0x02 the next one.
    let long = |low, n| [&[low, 2][..], &key(0, n)[1..]].concat();
    let items = [
        event(1, SystemEventKind::ScopeCreated, 0),
        event(2, SystemEventKind::CollectionCreated, 0x100),
        event(3, SystemEventKind::CollectionCreated, 8),
        event(4, SystemEventKind::CollectionCreated, 9),
        document(5, &key(9, 1), b"of another"),
        document(6, &key(8, 2), b"second"),
        document(7, &key(8, 1), b"first"),
        document(8, &long(0x80, 2), b"second"),
        tombstone(9, &long(0x80, 1)),
        document(10, &long(0x81, 1), b"of another"),
        document(11, &key(0, 1), b"default"),
        prepare(12, &key(8, 3), b"open"),
        event(13, SystemEventKind::CollectionModified, 8),
    ];
    storage
        .commit(VB, &items, &state(1, 13), 1)
        .expect("commit");
    let view = storage.view(VB).expect("a look").expect("a file");
    let found = |ids: &[u32], bodies| {
        let ids: Vec<CollectionId> = ids.iter().copied().map(CollectionId).collect();
        let scan = storage.scan_collections(&view, &ids, bodies);
        let records = scan
            .expect("a scan")
            .map(|record| record.expect("a record"));
        records
            .map(|record| {
                let has_value = record.value().is_some();
                (record.meta().seqno.get(), has_value)
            })
            .collect::<Vec<_>>()
    };
    for bodies in [false, true] {
        let with = |seqno| (seqno, bodies);
        assert_eq!(found(&[0], bodies), [with(11)]);
        // Bodies of events are read in any case.
        let eight = [(3, true), (13, true), with(7), with(6)];
        assert_eq!(found(&[8], bodies), eight);
        let long = [(2, true), with(9), with(8)];
        let both = [&eight[..], &long].concat();
        assert_eq!(found(&[0x100, 8, 8], bodies), both);
        assert_eq!(found(&[10], bodies), []);
    }
    // Dropped documents are invisible for readers, but the event is not.
    let drop = [event(14, SystemEventKind::CollectionDropped, 8)];
    storage.commit(VB, &drop, &state(1, 14), 1).expect("commit");
    let view = storage.view(VB).expect("a look").expect("a file");
    let scan = storage.scan_collections(&view, &[CollectionId(8)], true);
    let left = scan
        .expect("a scan")
        .map(|record| record.expect("a record"));
    let left: Vec<u64> = left.map(|record| record.meta().seqno.get()).collect();
    assert_eq!(left, [14, 13]);
}

#[test]
fn scan_with_xattrs_reads_bodies_with_attributes() {
    let storage = open(&SimDisk::new(4)).expect("open");
    let attributes = b"\0\0\0\x09\0\0\0\x05_a\x001\0body";
    let with_attributes = |seqno, deleted| {
        let meta = ItemMeta {
            datatype: Datatype::XATTR,
            deleted,
            ..meta(seqno)
        };
        FileChange::Document(Item::new(&meta, &key(0, seqno), &[&attributes[..]]))
    };
    let items = [
        document(1, &key(0, 1), b"plain"),
        with_attributes(2, None),
        with_attributes(3, Some(Deletion::Explicit)),
        document(4, &key(0, 4), b"plain"),
    ];
    storage.commit(VB, &items, &state(1, 4), 1).expect("commit");
    let view = storage.view(VB).expect("a look").expect("a file");
    let values = |scan: RecordScan| {
        let values = scan.map(|record| record.expect("a record").value().map(<[u8]>::to_vec));
        values.collect::<Vec<_>>()
    };
    let of_all = storage.scan_view(&view, .., false).expect("a scan");
    let of_one = storage.scan_collections(&view, &[CollectionId(0)], false);
    let attributes = Some(attributes.to_vec());
    for scan in [of_all, of_one.expect("a scan")] {
        let expected = [None, attributes.clone(), attributes.clone(), None];
        assert_eq!(values(scan.with_xattrs()), expected);
    }
    let without = storage.scan_view(&view, .., false).expect("a scan");
    assert_eq!(values(without), [None, None, None, None]);
}
