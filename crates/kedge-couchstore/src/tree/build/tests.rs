use std::path::Path;
use std::sync::Arc;

use kedge_disk::{Disk, SimDisk};

use super::*;
use crate::file::shared::OpenFile;
use crate::format::chunk::Codec;
use crate::tree::Local;
use crate::tree::cursor::Cursor;
use crate::tree::search::{NodeReader, ReadWindows};
use crate::{Offset, Options};

fn appender() -> (Arc<OpenFile>, FileAppender) {
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
    (Arc::clone(&shared), FileAppender::new(shared, 1))
}

type Entry = (Vec<u8>, Vec<u8>);

fn entries(count: u32, value_bytes: usize) -> Vec<Entry> {
    let entry = |n: u32| (n.to_be_bytes().to_vec(), vec![n as u8; value_bytes]);
    (0..count).map(entry).collect()
}

fn read(
    shared: &OpenFile,
    root: Option<Pointer<crate::format::pointer::NoReduce>>,
    end: u64,
) -> Vec<Entry> {
    let mut windows = ReadWindows::exact();
    let mut nodes = NodeReader::new(shared, Offset(end), &mut windows);
    let mut cursor = Cursor::<Local>::new(root);
    let mut entries = Vec::new();
    while let Some((_, entry)) = cursor.next(&mut nodes).expect("a sound tree") {
        entries.push((entry.key.to_vec(), entry.value.to_vec()));
    }
    entries
}

/// Returns the sizes of the nodes of a tree, for each level from the root down.
fn sizes(
    shared: &OpenFile,
    root: &Pointer<crate::format::pointer::NoReduce>,
    end: u64,
) -> Vec<Vec<usize>> {
    let mut windows = ReadWindows::exact();
    let mut nodes = NodeReader::new(shared, Offset(end), &mut windows);
    let mut levels = Vec::new();
    let mut level = vec![*root];
    while !level.is_empty() {
        let mut below = Vec::new();
        let mut sizes = Vec::new();
        for pointer in level {
            let node = nodes.node::<Local>(&pointer).expect("a node");
            sizes.push(node.bytes().len());
            if !node.is_leaf() {
                below.extend(node.entries().map(|entry| entry.pointer::<Local>()));
            }
        }
        levels.push(sizes);
        level = below;
    }
    levels
}

#[test]
fn built_tree_has_all_entries_in_well_filled_nodes() {
    for (count, value_bytes) in [
        (1, 10),
        (7, 10),
        (8, 50),
        (1000, 50),
        (20_000, 20),
        (50, 3000),
        (6, 70_000),
    ] {
        check_tree(NodeSizes::UPDATE, count, value_bytes);
        check_tree(NodeSizes::COPY, count, value_bytes);
    }
}

fn check_tree(targets: NodeSizes, count: u32, value_bytes: usize) {
    let (shared, mut out) = appender();
    let expected = entries(count, value_bytes);
    let mut builder = TreeBuilder::<Local>::new(&mut out, targets);
    for (key, value) in &expected {
        builder
            .push(key, |out| out.extend_from_slice(value))
            .expect("push");
    }
    let root = builder.finish().expect("finish").expect("a root");
    out.write_all().expect("write");
    let end = out.written();
    assert!(
        read(&shared, Some(root), end) == expected,
        "{count} of {value_bytes}"
    );
    let levels = sizes(&shared, &root, end);
    assert_eq!(levels[0].len(), 1, "one root");
    for (depth, level) in levels.iter().enumerate() {
        let is_leaf = depth + 1 == levels.len();
        let target = if is_leaf {
            targets.leaf_bytes
        } else {
            targets.interior_bytes
        };
        for bytes in level {
            // The last two of a level share the rest.
            assert!(
                level.len() < 3 || *bytes >= target * 2 / 3,
                "{bytes} of {target}"
            );
            let large = 2 * target + value_bytes * 8 + 100;
            assert!(*bytes <= large, "{bytes} of {target}");
        }
    }
}

#[test]
fn leaves_of_copies_are_contiguous() {
    let (shared, mut out) = appender();
    let expected = entries(5000, 60);
    let mut builder = TreeBuilder::<Local>::new(&mut out, NodeSizes::COPY);
    for (key, value) in &expected {
        builder.out().append(&[9; 500]).expect("append");
        builder
            .push(key, |out| out.extend_from_slice(value))
            .expect("push");
    }
    let root = builder.finish().expect("finish").expect("a root");
    out.write_all().expect("write");
    let end = out.written();
    assert!(read(&shared, Some(root), end) == expected);
    let mut windows = ReadWindows::exact();
    let mut nodes = NodeReader::new(&shared, Offset(end), &mut windows);
    let (mut leaves, mut level) = (Vec::new(), vec![root]);
    while let Some(pointer) = level.pop() {
        let node = nodes.node::<Local>(&pointer).expect("a node");
        if node.is_leaf() {
            leaves.push(pointer);
        } else {
            level.extend(node.entries().map(|entry| entry.pointer::<Local>()));
        }
    }
    leaves.sort_unstable_by_key(|leaf| leaf.offset);
    let beside = |pair: &&[Pointer<_>]| {
        crate::format::block::end_of(pair[0].offset, pair[0].subtree_bytes) == pair[1].offset
    };
    let groups = leaves.len() - leaves.windows(2).filter(beside).count();
    assert!(groups * 8 < leaves.len(), "{groups} of {}", leaves.len());
}

#[test]
fn empty_input_builds_no_tree() {
    let (_, mut out) = appender();
    let builder = TreeBuilder::<Local>::new(&mut out, NodeSizes::UPDATE);
    assert_eq!(builder.finish().expect("finish"), None);
    assert_eq!(out.position(), 1);
}

#[test]
fn unchanged_subtrees_of_any_height_stay_in_order() {
    let (shared, mut out) = appender();
    let all = entries(900, 30);
    let mut roots = Vec::new();
    for part in all.chunks(300) {
        let mut builder = TreeBuilder::<Local>::new(&mut out, NodeSizes::UPDATE);
        for (key, value) in part {
            builder
                .push(key, |out| out.extend_from_slice(value))
                .expect("push");
        }
        roots.push(builder.finish().expect("finish").expect("a root"));
    }
    out.write_all().expect("write");
    let height = sizes(&shared, &roots[0], out.written()).len() - 1;
    let mut builder = TreeBuilder::<Local>::new(&mut out, NodeSizes::UPDATE);
    let entry = |key: &[u8], root: &Pointer<_>| {
        let mut entry = pack_lengths(key.len(), 14).to_vec();
        entry.extend_from_slice(key);
        root.put_value(&mut entry);
        entry
    };
    // The first and the last stay, and those between are rewritten.
    builder
        .push_subtree(height, &entry(&all[299].0, &roots[0]))
        .expect("push");
    for (key, value) in &all[300..600] {
        builder
            .push(key, |out| out.extend_from_slice(value))
            .expect("push");
    }
    builder
        .push_subtree(height, &entry(&all[899].0, &roots[2]))
        .expect("push");
    let root = builder.finish().expect("finish");
    out.write_all().expect("write");
    assert!(read(&shared, root, out.written()) == all);
}

/// A low subtree between high ones used to wait until the high ones after it were added: an update that emptied the
/// last leaves below an interior node, and kept the ones before them, put them out of order.
#[test]
fn low_subtree_between_high_ones_stays_in_order() {
    let (shared, mut out) = appender();
    let all = entries(605, 30);
    let parts = [&all[..300], &all[300..305], &all[305..]];
    let mut subtrees = Vec::new();
    for part in parts {
        let mut builder = TreeBuilder::<Local>::new(&mut out, NodeSizes::UPDATE);
        for (key, value) in part {
            builder
                .push(key, |out| out.extend_from_slice(value))
                .expect("push");
        }
        let root = builder.finish().expect("finish").expect("a root");
        let key = &part.last().expect("entries").0;
        let mut entry = pack_lengths(key.len(), 14).to_vec();
        entry.extend_from_slice(key);
        root.put_value(&mut entry);
        subtrees.push((root, entry));
    }
    out.write_all().expect("write");
    let heights = subtrees
        .iter()
        .map(|(root, _)| sizes(&shared, root, out.written()).len() - 1);
    let heights: Vec<usize> = heights.collect();
    assert!(heights[0] > heights[1] && heights[1] < heights[2]);
    let mut builder = TreeBuilder::<Local>::new(&mut out, NodeSizes::UPDATE);
    for (height, (_, entry)) in heights.iter().zip(&subtrees) {
        builder.push_subtree(*height, entry).expect("push");
    }
    let root = builder.finish().expect("finish");
    out.write_all().expect("write");
    assert!(read(&shared, root, out.written()) == all);
}

#[test]
fn single_subtree_needs_no_node_above_it() {
    let (_, mut out) = appender();
    let mut builder = TreeBuilder::<Local>::new(&mut out, NodeSizes::UPDATE);
    builder.push(b"k", |_| {}).expect("push");
    let root = builder.finish().expect("finish").expect("a root");
    let mut builder = TreeBuilder::<Local>::new(&mut out, NodeSizes::UPDATE);
    let mut entry = pack_lengths(1, 14).to_vec();
    entry.push(b'k');
    root.put_value(&mut entry);
    builder.push_subtree(0, &entry).expect("push");
    assert_eq!(builder.finish().expect("finish"), Some(root));
}
