//! A file as one commit left it.

use kedge_disk::SimDisk;
use kedge_storage::{FileView, Storage};
use kedge_types::Seqno;
use kedge_vbucket::PersistedState;

use crate::support::{VB, documents, fill, open, state};

fn seqnos(storage: &Storage, view: &FileView, from: u64) -> Vec<u64> {
    let scan = storage.scan_view(view, Seqno(from).., true);
    let scan = scan.expect("a scan");
    scan.map(|record| record.expect("a record").meta().seqno.get())
        .collect()
}

#[test]
fn a_view_stays_what_it_was() {
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
fn a_commit_within_a_batch_is_no_consistent_point() {
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
