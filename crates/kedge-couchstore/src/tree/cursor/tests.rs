use std::path::Path;
use std::sync::Arc;

use kedge_disk::{Disk, SimDisk};

use super::*;
use crate::Options;
use crate::file::shared::OpenFile;
use crate::format::bytes::pack_lengths;
use crate::format::chunk::Codec;
use crate::format::pointer::NoReduce;
use crate::tree::Local;
use crate::tree::search::ReadWindows;
use crate::write::append::FileAppender;

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

fn append(out: &mut FileAppender, node: &[u8]) -> Pointer<NoReduce> {
    let packed = snap::raw::Encoder::new()
        .compress_vec(node)
        .expect("snappy");
    let (offset, bytes) = out.append(&packed).expect("append");
    Pointer {
        offset,
        subtree_bytes: bytes.into(),
        reduce: NoReduce,
    }
}

fn interior(children: &[(&[u8], Pointer<NoReduce>)]) -> Vec<u8> {
    let mut node = vec![0];
    for (key, child) in children {
        node.extend_from_slice(&pack_lengths(key.len(), Pointer::<NoReduce>::VALUE_BYTES));
        node.extend_from_slice(key);
        child.put_value(&mut node);
    }
    node
}

/// Creates a tree of `levels` levels, each of which refers twice to the one below: few nodes, 2^levels paths.
fn doubled(levels: usize) -> (Arc<OpenFile>, FileAppender, Pointer<NoReduce>) {
    let (shared, mut out) = appender();
    let leaf = [&[1][..], &pack_lengths(1, 0), b"k"].concat();
    let mut top = append(&mut out, &leaf);
    for _ in 0..levels {
        top = append(&mut out, &interior(&[(b"k", top), (b"l", top)]));
    }
    out.write_all().expect("write");
    (shared, out, top)
}

#[test]
fn walk_ends_at_shared_nodes() {
    let (shared, out, root) = doubled(50);
    let mut windows = ReadWindows::exact();
    let mut nodes = NodeReader::new(&shared, Offset(out.written()), &mut windows);
    let mut cursor = Cursor::<Local>::new(Some(root));
    assert!(cursor.next(&mut nodes).expect("the first leaf").is_some());
    let error = cursor.next(&mut nodes).expect_err("the same leaf again");
    let is_order = matches!(
        error,
        Error::Corrupt {
            problem: DamageKind::KeyOrder(_),
            ..
        }
    );
    assert!(is_order, "{error}");
}

#[test]
fn too_deep_tree_is_rejected() {
    let (shared, out, root) = doubled(DEPTH_MAX + 1);
    let mut windows = ReadWindows::exact();
    let mut nodes = NodeReader::new(&shared, Offset(out.written()), &mut windows);
    let is_depth = |error: Error| {
        matches!(
            error,
            Error::Corrupt {
                problem: DamageKind::Depth,
                ..
            }
        )
    };
    let mut cursor = Cursor::<Local>::new(Some(root));
    assert!(is_depth(cursor.next(&mut nodes).expect_err("too deep")));
    let mut cursor = Cursor::<Local>::new(Some(root));
    assert!(is_depth(
        cursor.seek(&mut nodes, b"k").expect_err("too deep")
    ));
    assert!(is_depth(
        nodes
            .find::<Local, _>(&root, b"k", |_| ())
            .expect_err("too deep")
    ));
    let many = nodes.find_many::<Local, _>(&root, &[(0, b"k")], 0, &mut |_, _| ());
    assert!(is_depth(many.expect_err("too deep")));
}

#[test]
fn seek_continues_if_a_parents_key_is_too_high() {
    let (shared, mut out) = appender();
    let leaf = |key: &[u8]| [&[1][..], &pack_lengths(key.len(), 0), key].concat();
    let (first, second) = (append(&mut out, &leaf(b"b")), append(&mut out, &leaf(b"x")));
    // The first child's last key is b, and its parent states d.
    let root = append(&mut out, &interior(&[(b"d", first), (b"x", second)]));
    out.write_all().expect("write");
    let mut windows = ReadWindows::exact();
    let mut nodes = NodeReader::new(&shared, Offset(out.written()), &mut windows);
    let mut cursor = Cursor::<Local>::new(Some(root));
    cursor.seek(&mut nodes, b"c").expect("seek");
    let (_, entry) = cursor.next(&mut nodes).expect("next").expect("an entry");
    assert_eq!(entry.key, b"x");
    assert!(cursor.next(&mut nodes).expect("next").is_none());
}
