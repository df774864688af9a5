//! Files with correct checksums and wrong contents, as a faulty writer might leave them.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use kedge_disk::{Disk as _, SimDisk};
use kedge_types::Seqno;

use super::{CheckObserver, Checked, DAMAGES_MAX};
use crate::file::shared::OpenFile;
use crate::format::block::HEADER;
use crate::format::bytes::{be48, pack_lengths};
use crate::format::chunk::Codec;
use crate::format::entry::EntryFields;
use crate::format::header::{Header, Version};
use crate::format::pointer::{Pointer, Reduce};
use crate::tree::build::{NodeSizes, TreeBuilder};
use crate::tree::node::type_byte;
use crate::tree::{ById, BySeqno, Local, Tree};
use crate::write::append::FileAppender;
use crate::{DamageKind, Entry, Error, Offset, Options, Snapshot};

const FILE: &str = "/data/0.couch.1";

/// Builds a file piece by piece.
struct Forge {
    out: FileAppender,
    disk: SimDisk,
    header: Header,
}

/// An entry of a leaf or of an interior node.
type Raw = (Vec<u8>, Vec<u8>);

impl Forge {
    fn new() -> Self {
        let disk = SimDisk::new(1);
        disk.create_dir_all(Path::new("/data")).expect("create");
        let file = disk.create(Path::new(FILE)).expect("create");
        file.write_at(&[0], 0).expect("write");
        let options = Options::default();
        let shared = OpenFile::new(file, Path::new(FILE), Codec::Crc32c.into(), &options);
        Forge {
            out: FileAppender::new(Arc::new(shared), 1),
            disk,
            header: Header::empty(Offset(0), Version::V14, false),
        }
    }

    /// Creates documents 1 to `count`, each with a body.
    fn documents(&mut self, count: u64) -> Vec<Doc> {
        (1..=count)
            .map(|number| {
                let (body, body_bytes) = self.out.append(b"body").expect("append");
                Doc {
                    key: format!("key-{number:04}").into_bytes(),
                    fields: EntryFields {
                        seqno: number,
                        rev: 1,
                        body,
                        body_bytes,
                        deleted: number % 7 == 0,
                        content_meta: 3,
                    },
                    rev_meta: [7; 18],
                }
            })
            .collect()
    }

    fn tree<T: Tree>(&mut self, entries: Vec<Raw>) -> Option<Pointer<T::Reduce>> {
        let mut builder = TreeBuilder::<T>::new(&mut self.out, NodeSizes::UPDATE);
        for (key, value) in entries {
            let push = builder.push(&key, |out| out.extend_from_slice(&value));
            push.expect("push");
        }
        builder.finish().expect("finish")
    }

    /// Writes one node as given. Returns a correct pointer to it.
    fn node<T: Tree>(&mut self, height: usize, entries: &[Raw]) -> Pointer<T::Reduce> {
        let mut plain = vec![type_byte(height)];
        let mut reduce = T::Reduce::default();
        let mut below = 0;
        for (key, value) in entries {
            plain.extend_from_slice(&pack_lengths(key.len(), value.len()));
            plain.extend_from_slice(&[&**key, value].concat());
            if height == 0 {
                reduce.add(&T::reduce(value));
            } else {
                let child = Pointer::<T::Reduce>::take_value(value).expect("a pointer");
                reduce.add(&child.reduce);
                below += child.subtree_bytes;
            }
        }
        let packed = snap::raw::Encoder::new().compress_vec(&plain);
        let appended = self.out.append(&packed.expect("compress"));
        let (offset, bytes) = appended.expect("append");
        Pointer {
            offset,
            subtree_bytes: below + u64::from(bytes),
            reduce,
        }
    }

    /// Writes both trees of documents, and their header.
    fn trees(&mut self, by_id: &[Doc], by_seqno: &[Doc]) {
        self.header.by_id = self.tree::<ById>(by_id.iter().map(Doc::id_entry).collect());
        let by_seqno = by_seqno.iter().map(Doc::seqno_entry).collect();
        self.header.by_seqno = self.tree::<BySeqno>(by_seqno);
        self.header.update_seqno = Seqno(by_id.len() as u64);
    }

    fn finish(mut self) -> Snapshot {
        let mut header = self.header;
        let at = self.out.append_header(|offset, out| {
            header.offset = offset;
            header.put(HEADER, out);
        });
        at.expect("append");
        self.out.write_all().expect("write");
        Snapshot::open(&self.disk, Path::new(FILE), &Options::default()).expect("open")
    }
}

#[derive(Clone)]
struct Doc {
    key: Vec<u8>,
    fields: EntryFields,
    rev_meta: [u8; 18],
}

impl Doc {
    fn id_entry(&self) -> Raw {
        let mut value = Vec::new();
        self.fields.put_id(&mut value);
        value.extend_from_slice(&self.rev_meta);
        (self.key.clone(), value)
    }

    fn seqno_entry(&self) -> Raw {
        let mut value = Vec::new();
        self.fields.put_seqno(self.key.len(), &mut value);
        value.extend_from_slice(&self.key);
        value.extend_from_slice(&self.rev_meta);
        (be48(self.fields.seqno).to_vec(), value)
    }
}

/// An observer that records everything.
#[derive(Default)]
struct Notes {
    problems: Vec<DamageKind>,
    unreadable: usize,
    seqnos: Vec<u64>,
    other_bodies: usize,
    locals: usize,
    entries: u64,
}

impl CheckObserver for Notes {
    fn progress(&mut self, entries: u64) {
        self.entries += entries;
    }

    fn damage(&mut self, damage: Error) -> ControlFlow<()> {
        match damage {
            Error::Corrupt { problem, .. } => self.problems.push(problem),
            _ => self.unreadable += 1,
        }
        ControlFlow::Continue(())
    }

    fn document(&mut self, _: Offset, entry: &Entry, body: Option<&[u8]>) {
        self.seqnos.push(entry.seqno().0);
        self.other_bodies += usize::from(body != Some(&b"body"[..]));
    }

    fn local(&mut self, _: Offset, _: &[u8], _: &[u8]) {
        self.locals += 1;
    }
}

fn check(snapshot: &Snapshot) -> (Checked, Notes) {
    let mut notes = Notes::default();
    let checked = snapshot.check_all(&mut notes).expect("the disk works");
    // A check that ends at the first damage finds the same one.
    let first = match snapshot.check(&mut |_| {}) {
        Ok(_) => None,
        Err(Error::Corrupt { problem, .. }) => Some(problem),
        Err(error) => panic!("{error}"),
    };
    assert_eq!(first, notes.problems.first().copied());
    (checked, notes)
}

/// Returns the findings in a file of 200 documents whose trees or header `change` has modified.
fn problems(change: impl FnOnce(&mut Forge, &mut Vec<Doc>, &mut Vec<Doc>)) -> Vec<DamageKind> {
    let mut forge = Forge::new();
    let mut by_id = forge.documents(200);
    let mut by_seqno = by_id.clone();
    change(&mut forge, &mut by_id, &mut by_seqno);
    forge.trees(&by_id, &by_seqno);
    check(&forge.finish()).1.problems
}

#[test]
fn check_counts_everything_in_a_sound_file() {
    let mut forge = Forge::new();
    let docs = forge.documents(200);
    forge.trees(&docs, &docs);
    let locals = (0..50).map(|n| (vec![n], vec![n; 100])).collect();
    forge.header.local = forge.tree::<Local>(locals);
    let (checked, notes) = check(&forge.finish());
    assert!(notes.problems.is_empty(), "{:?}", notes.problems);
    assert_eq!(
        (checked.live, checked.deleted, checked.locals),
        (200 - 28, 28, 50)
    );
    assert_eq!(checked.body_bytes, 200 * 12);
    assert!(checked.nodes > 20, "{checked:?}");
    assert_eq!(notes.seqnos, (1..=200).collect::<Vec<_>>());
    assert_eq!((notes.entries, notes.locals), (400, 50));
    assert_eq!(notes.other_bodies, 0);
}

#[test]
fn check_finds_any_difference_between_the_trees() {
    type SavedChange = fn(&mut Doc);
    let changes: [SavedChange; 7] = [
        |doc| doc.fields.rev = 2,
        |doc| doc.fields.body -= 12,
        |doc| doc.fields.body_bytes += 1,
        |doc| doc.fields.deleted = !doc.fields.deleted,
        |doc| doc.fields.content_meta = 0,
        |doc| doc.key.push(b'x'),
        |doc| doc.rev_meta[17] = 1,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        // The check reads bodies through the tree by seqno, so that tree stays correct.
        let found = problems(|_, by_id, _| change(&mut by_id[99]));
        let differ = DamageKind::TreesDiffer(100);
        assert!(
            found.contains(&differ) && found.iter().all(|problem| *problem == differ),
            "{number}: {found:?}"
        );
    }
    let found = problems(|_, by_id, _| {
        by_id.remove(99);
    });
    // With one document less, the header's highest seqno is one less, too.
    let above = DamageKind::SeqnoAbove {
        found: 200,
        newest: 199,
    };
    assert_eq!(found, [above, DamageKind::TreesDiffer(100)]);
    let found = problems(|_, _, by_seqno| {
        by_seqno.remove(99);
    });
    assert_eq!(found, [DamageKind::TreesDiffer(100)]);
    let swapped = problems(|_, by_id, _| {
        by_id[9].fields.seqno = 11;
        by_id[10].fields.seqno = 10;
    });
    let both = [11, 10, 10, 11].map(DamageKind::TreesDiffer);
    assert_eq!(swapped, both[..swapped.len()]);
}

#[test]
fn check_compares_roots_with_their_trees() {
    let with_root = |change: fn(&mut Header)| {
        let mut forge = Forge::new();
        let docs = forge.documents(200);
        forge.trees(&docs, &docs);
        change(&mut forge.header);
        check(&forge.finish()).1.problems
    };
    let by_id = |change: fn(&mut Pointer<crate::format::pointer::IdReduce>)| {
        let mut forge = Forge::new();
        let docs = forge.documents(200);
        forge.trees(&docs, &docs);
        change(forge.header.by_id.as_mut().expect("a root"));
        check(&forge.finish()).1.problems
    };
    assert_eq!(by_id(|root| root.reduce.live += 1), [DamageKind::Reduce]);
    assert_eq!(by_id(|root| root.reduce.deleted -= 1), [DamageKind::Reduce]);
    assert_eq!(
        by_id(|root| root.reduce.body_bytes = 0),
        [DamageKind::Reduce]
    );
    assert!(matches!(
        by_id(|root| root.subtree_bytes -= 1)[..],
        [DamageKind::SubtreeBytes { expected, found }] if found + 1 == expected
    ));
    assert_eq!(
        with_root(|header| header.update_seqno = Seqno(199)),
        [DamageKind::SeqnoAbove {
            found: 200,
            newest: 199
        }]
    );
    // Without a whole tree, every document of the other is reported.
    assert_eq!(with_root(|header| header.by_id = None).len(), 200);
    assert_eq!(with_root(|header| header.by_seqno = None).len(), 200);
}

#[test]
fn check_finds_missing_bodies() {
    let both = |change: fn(&mut Doc)| {
        problems(|_, by_id, by_seqno| {
            change(&mut by_id[0]);
            change(&mut by_seqno[0]);
        })
    };
    let far = both(|doc| doc.fields.body = 1 << 40);
    assert_eq!(far, [DamageKind::BodyPointer(1 << 40)]);
    assert_eq!(
        both(|doc| doc.fields.body = 0),
        [DamageKind::BodyPointer(0)],
        "a size without a place"
    );
    assert_eq!(
        both(|doc| doc.fields.body_bytes = 13),
        [DamageKind::BodySize {
            expected: 13,
            found: 12
        }]
    );
    assert_eq!(
        both(|doc| doc.fields.content_meta = 0x80),
        [DamageKind::Snappy]
    );
    assert!(
        both(|doc| doc.fields = EntryFields {
            body: 0,
            body_bytes: 0,
            ..doc.fields
        })
        .is_empty()
    );
}

#[test]
fn check_of_shared_bodies_ends() {
    let mut forge = Forge::new();
    let mut docs = forge.documents(200);
    let (body, body_bytes) = forge.out.append(&[1; 9000]).expect("append");
    for doc in &mut docs {
        (doc.fields.body, doc.fields.body_bytes) = (body, body_bytes);
    }
    forge.trees(&docs, &docs);
    let snapshot = forge.finish();
    let mut seen = 0;
    struct Count<'a>(&'a mut usize, Vec<DamageKind>);
    impl CheckObserver for Count<'_> {
        fn damage(&mut self, damage: Error) -> ControlFlow<()> {
            if let Error::Corrupt { problem, .. } = damage {
                self.1.push(problem);
            }
            ControlFlow::Continue(())
        }
        fn document(&mut self, _: Offset, _: &Entry, _: Option<&[u8]>) {
            *self.0 += 1;
        }
    }
    let mut count = Count(&mut seen, Vec::new());
    snapshot.check_all(&mut count).expect("the disk works");
    assert!(
        matches!(count.1[..], [DamageKind::BodiesOverlap(_)]),
        "{:?}",
        count.1
    );
    assert!(seen < 20, "{seen} bodies of 9 KB in a file of a few blocks");
}

/// Checks a tree of local documents of two leaves under a root, after `change` has modified the root's entries.
fn locals(change: impl FnOnce(&mut Vec<Raw>)) -> (Checked, Vec<DamageKind>) {
    let mut forge = Forge::new();
    let leaf = |keys: &[&str]| -> Vec<Raw> {
        keys.iter()
            .map(|key| (key.as_bytes().to_vec(), b"v".to_vec()))
            .collect()
    };
    let mut entries = Vec::new();
    for keys in [["a", "b"], ["c", "d"], ["e", "f"]] {
        let pointer = forge.node::<Local>(0, &leaf(&keys));
        let mut value = Vec::new();
        pointer.put_value(&mut value);
        entries.push((keys[1].as_bytes().to_vec(), value));
    }
    change(&mut entries);
    forge.header.local = Some(forge.node::<Local>(1, &entries));
    let (checked, notes) = check(&forge.finish());
    (checked, notes.problems)
}

#[test]
fn check_compares_pointers_with_their_subtrees() {
    assert_eq!(locals(|_| {}).1, []);
    // A search for "b2" would take the wrong path.
    let (_, found) = locals(|entries| entries[0].0 = b"bb".to_vec());
    assert_eq!(found, [DamageKind::LastKey(1)]);
    // One leaf twice: its keys are not above the preceding ones, and the check continues after it.
    let (checked, found) = locals(|entries| {
        let again = entries[0].1.clone();
        entries.insert(1, (b"bb".to_vec(), again));
    });
    assert_eq!(found, [DamageKind::KeyOrder(1)]);
    assert_eq!(checked.locals, 6);
    // The pointer leads to no node.
    let (checked, found) = locals(|entries| entries[1].1[..6].copy_from_slice(&be48(2)));
    assert_eq!((found.len(), checked.locals), (1, 4), "{found:?}");
}

#[test]
fn check_of_an_endless_graph_of_nodes_ends() {
    let mut forge = Forge::new();
    let mut below = forge.node::<Local>(0, &[(b"a".to_vec(), b"v".to_vec())]);
    // Each level has ten pointers to the same node: 10^30 paths.
    for level in 0..30 {
        let entries: Vec<Raw> = (0..10_u8)
            .map(|n| {
                let mut value = Vec::new();
                below.put_value(&mut value);
                (vec![b'a' + n], value)
            })
            .collect();
        below = forge.node::<Local>(level + 1, &entries);
    }
    forge.header.local = Some(below);
    let (checked, notes) = check(&forge.finish());
    assert_eq!(notes.problems.len(), DAMAGES_MAX as usize);
    assert!(checked.nodes < 100_000, "{checked:?}");
}

#[test]
fn unreadable_sector_does_not_hide_other_damage() {
    let mut forge = Forge::new();
    let mut docs = forge.documents(20);
    let (body, body_bytes) = forge.out.append(&[1; 20_000]).expect("append");
    (docs[4].fields.body, docs[4].fields.body_bytes) = (body, body_bytes);
    forge.trees(&docs, &docs);
    let disk = forge.disk.clone();
    let snapshot = forge.finish();
    disk.make_unreadable(Path::new(FILE), body + 8192);
    let mut notes = Notes::default();
    let checked = snapshot.check_all(&mut notes).expect("the rest is there");
    assert_eq!((notes.unreadable, notes.problems.len()), (1, 0));
    assert_eq!(notes.seqnos.len(), 19);
    assert_eq!(checked.live + checked.deleted, 20);
}
