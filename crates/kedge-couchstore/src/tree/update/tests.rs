use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use kedge_disk::{Disk, SimDisk};
use proptest::prelude::*;

use super::*;
use crate::file::shared::OpenFile;
use crate::format::chunk::Codec;
use crate::format::pointer::NoReduce;
use crate::tree::Local;
use crate::tree::build::NodeSizes;
use crate::tree::cursor::Cursor;
use crate::tree::search::ReadWindows;
use crate::write::append::FileAppender;
use crate::{Offset, Options};

/// Keys with their new values; `None` removes.
type Batch = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A batch as changes of a tree.
struct Listed<'a> {
    list: Vec<(&'a [u8], Option<&'a [u8]>)>,
    at: usize,
    /// The old values so far.
    seen: Vec<Vec<u8>>,
}

impl TreeChanges<Local> for Listed<'_> {
    fn next_key(&self) -> Option<&[u8]> {
        self.list.get(self.at).map(|(key, _)| *key)
    }

    fn apply(
        &mut self,
        old: Option<NodeEntry<'_>>,
        builder: &mut TreeBuilder<'_, Local>,
    ) -> Result<(), Error> {
        let (key, value) = self.list[self.at];
        self.at += 1;
        if let Some(old) = old {
            assert_eq!(old.key, key);
            self.seen.push(old.value.to_vec());
        }
        match value {
            Some(value) => builder.push(key, |out| out.extend_from_slice(value)),
            None => Ok(()),
        }
    }
}

struct Tree {
    shared: Arc<OpenFile>,
    out: FileAppender,
    root: Option<Pointer<NoReduce>>,
    sizes: NodeSizes,
}

/// So small that few entries make a deep tree.
const SMALL: NodeSizes = NodeSizes {
    leaf_bytes: 60,
    interior_bytes: 100,
    together_bytes: 0,
};

impl Tree {
    fn new(sizes: NodeSizes) -> Self {
        let disk = SimDisk::new(1);
        disk.create_dir_all(Path::new("/d")).expect("a directory");
        let path = Path::new("/d/tree");
        let file = disk.create(path).expect("a file");
        let shared = Arc::new(OpenFile::new(
            file,
            path,
            Codec::Crc32c.into(),
            &Options::default(),
        ));
        Tree {
            out: FileAppender::new(Arc::clone(&shared), 1),
            shared,
            root: None,
            sizes,
        }
    }

    /// Applies a batch. Returns the old values.
    fn apply(&mut self, batch: &Batch) -> Vec<Vec<u8>> {
        self.out.write_all().expect("write");
        let list = batch.iter().map(|(key, value)| (&**key, value.as_deref()));
        let mut changes = Listed {
            list: list.collect(),
            at: 0,
            seen: Vec::new(),
        };
        let mut windows = ReadWindows::update(1 << 16);
        let mut nodes = NodeReader::new(&self.shared, Offset(self.out.written()), &mut windows);
        let mut builder = TreeBuilder::new(&mut self.out, self.sizes);
        update(&mut nodes, self.root.as_ref(), &mut changes, &mut builder).expect("update");
        self.root = builder.finish().expect("finish");
        self.out.write_all().expect("write");
        changes.seen
    }

    fn read(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut windows = ReadWindows::exact();
        let mut nodes = NodeReader::new(&self.shared, Offset(self.out.written()), &mut windows);
        let mut cursor = Cursor::<Local>::new(self.root);
        let mut entries = BTreeMap::new();
        while let Some((_, entry)) = cursor.next(&mut nodes).expect("a sound tree") {
            entries.insert(entry.key.to_vec(), entry.value.to_vec());
        }
        entries
    }

    fn written(&self) -> u64 {
        self.out.written()
    }
}

/// Single keys, and ranges of keys that are all set or all removed, which empties leaves and whole subtrees.
fn batches() -> impl Strategy<Value = Vec<Batch>> {
    let value = || prop::option::weighted(0.6, prop::collection::vec(any::<u8>(), 0..60));
    let key = |n: u32| format!("key{n:04}").into_bytes();
    let single = prop::collection::btree_map((0..600_u32).prop_map(key), value(), 0..10);
    // About the length of a leaf, and of many.
    let len = prop_oneof![1..12_u32, 1..250_u32];
    let ranges = prop::collection::vec((0..600_u32, len, value()), 0..8);
    let batch = (single, ranges).prop_map(move |(mut batch, ranges)| {
        for (from, len, value) in ranges {
            batch.extend((from..from + len).map(|n| (key(n), value.clone())));
        }
        batch
    });
    prop::collection::vec(batch, 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn updated_tree_agrees_with_a_map(batches in batches()) {
        let mut tree = Tree::new(SMALL);
        let mut map: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for batch in &batches {
            let mut expected = Vec::new();
            for (key, value) in batch {
                expected.extend(map.remove(key));
                if let Some(value) = value {
                    map.insert(key.clone(), value.clone());
                }
            }
            prop_assert_eq!(tree.apply(batch), expected);
            prop_assert_eq!(&tree.read(), &map);
            prop_assert_eq!(tree.root.is_none(), map.is_empty());
        }
    }
}

fn numbered(range: std::ops::Range<u32>, value: Option<&[u8]>) -> Batch {
    let key = |n: u32| format!("key{n:06}").into_bytes();
    range.map(|n| (key(n), value.map(<[u8]>::to_vec))).collect()
}

#[test]
fn unchanged_nodes_are_not_rewritten() {
    let mut tree = Tree::new(NodeSizes::UPDATE);
    tree.apply(&numbered(0..20_000, Some(&[7; 30])));
    let before = tree.written();
    tree.apply(&numbered(10_000..10_001, Some(&[8; 30])));
    let nodes = tree.written() - before;
    assert!(nodes < 4000, "{nodes} bytes for one entry");
    let root = tree.root;
    tree.apply(&numbered(30_000..30_001, None));
    assert_eq!(tree.read().len(), 20_000);
    let again = tree.root.expect("a root");
    assert_eq!(Some(again.reduce), root.map(|root| root.reduce));
}

#[test]
fn small_leaves_are_joined_as_entries_are_removed() {
    let mut tree = Tree::new(NodeSizes::UPDATE);
    tree.apply(&numbered(0..4000, Some(&[7; 30])));
    let bytes = |tree: &Tree| tree.root.expect("a root").subtree_bytes;
    let full = bytes(&tree);
    // Seven of eight are removed, a few at a time, as when documents are replaced at random.
    for round in 0..70 {
        let gone = numbered(0..4000, None)
            .into_iter()
            .enumerate()
            .filter(|(n, _)| n % 8 != 0 && n * 31 % 70 == round)
            .map(|(_, change)| change)
            .collect();
        tree.apply(&gone);
    }
    assert_eq!(tree.read().len(), 500);
    let left = bytes(&tree);
    assert!(left * 4 < full, "{left} of {full} bytes for an eighth");
}
