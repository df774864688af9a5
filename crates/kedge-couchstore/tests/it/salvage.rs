//! Scans that skip damage return everything that is sound, and nothing else.

use kedge_couchstore::{BodyForm, Document, Error, NodeItem, Options, Snapshot, TreeKind};
use kedge_disk::{Disk as _, SimDisk};

use crate::support::{disk_with, golden, path};

/// Size of the unit that becomes unreadable, in bytes.
const SECTOR: u64 = 512;

fn open(disk: &SimDisk) -> Snapshot {
    Snapshot::open(disk, path(), &Options::default()).expect("open")
}

/// The file to damage, and its contents.
fn sound() -> (SimDisk, Vec<Document>) {
    let disk = disk_with(&golden("s1k_10commits_compacted.couch.2"));
    // Media fail below the cached data.
    let file = disk.open(path()).expect("open");
    file.sync_all().expect("sync");
    let (documents, errors) = salvage(&open(&disk));
    assert_eq!((documents.len(), errors.len()), (1000, 0));
    (disk, documents)
}

fn salvage(snapshot: &Snapshot) -> (Vec<Document>, Vec<Error>) {
    let scan = snapshot.scan_seqnos(..).expect("a scan").past_damage();
    let (mut documents, mut errors) = (Vec::new(), Vec::new());
    for document in scan.with_bodies(BodyForm::Plain) {
        match document {
            Ok(document) => documents.push(document),
            Err(error) => errors.push(error),
        }
    }
    (documents, errors)
}

#[test]
fn damaged_leaf_hides_its_documents_only() {
    let (disk, all) = sound();
    let snapshot = open(&disk);
    let nodes: Vec<_> = snapshot.nodes_of(TreeKind::BySeqno).collect();
    let mut leaves = nodes
        .into_iter()
        .map(|node| node.expect("a node"))
        .filter(|node| node.is_leaf());
    let leaf = leaves.nth(7).expect("many leaves");
    disk.flip(path(), leaf.offset().0 + 60, 1);
    let hidden: Vec<_> = leaf
        .items()
        .map(|item| match item {
            NodeItem::Document(entry) => entry.seqno(),
            other => panic!("{other:?}"),
        })
        .collect();
    let (found, errors) = salvage(&open(&disk));
    assert_eq!(errors.len(), 1);
    let expected: Vec<_> = all
        .iter()
        .filter(|document| !hidden.contains(&document.entry.seqno()))
        .collect();
    assert!(found.len() < all.len() && found.iter().eq(expected));
    // By default a scan ends there.
    let scan = open(&disk).scan_seqnos(..).expect("a scan");
    let before = hidden[0].get() as usize - 1;
    assert_eq!(scan.map_while(Result::ok).count(), before);
}

#[test]
fn damaged_bodies_hide_only_themselves() {
    let (disk, all) = sound();
    for number in [0, 499, 500, 999] {
        let offset = all[number].entry.body_offset().expect("a body");
        disk.flip(path(), offset.0 + 20, 0x80);
    }
    let (found, errors) = salvage(&open(&disk));
    assert_eq!((found.len(), errors.len()), (996, 4));
    assert!(found.iter().all(|document| all.contains(document)));
}

#[test]
fn unreadable_sectors_hide_only_their_documents() {
    let (disk, all) = sound();
    let nodes: Vec<_> = open(&disk).nodes_of(TreeKind::BySeqno).collect();
    let no_node_in = |sector: u64| {
        nodes.iter().flatten().all(|node| {
            let start = node.offset().0;
            start + node.disk_bytes() + 1 < sector || start >= sector + SECTOR
        })
    };
    let offsets = all.iter().filter_map(|found| found.entry.body_offset());
    let sector = offsets
        .skip(300)
        .map(|offset| offset.0 / SECTOR * SECTOR)
        .find(|sector| no_node_in(*sector))
        .expect("a sector of bodies alone");
    disk.make_unreadable(path(), sector);
    let (found, errors) = salvage(&open(&disk));
    // Bodies have at least 64 bytes.
    assert!((2..=9).contains(&errors.len()), "{errors:?}");
    assert_eq!(found.len() + errors.len(), 1000);
    assert!(found.iter().all(|document| all.contains(document)));
}

#[test]
fn damaged_root_ends_the_scan() {
    let (disk, _) = sound();
    let root = open(&disk).nodes_of(TreeKind::BySeqno).next();
    let root = root.expect("a root").expect("a node");
    disk.flip(path(), root.offset().0 + 9, 1);
    let (found, errors) = salvage(&open(&disk));
    assert_eq!((found.len(), errors.len()), (0, 1));
}
