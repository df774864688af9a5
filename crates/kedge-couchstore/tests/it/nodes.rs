//! Trees node by node: the tree by id as Couchbase's tools print it, and the properties of all three trees.

use std::collections::HashMap;
use std::fmt::Write as _;

use kedge_couchstore::kv::DiskKey;
use kedge_couchstore::{NodeItem, Offset, Options, Snapshot, SubtreeTotals, TreeKind, TreeNode};
use kedge_disk::PosixDisk;

use crate::kv::print_key;
use crate::support::golden_path;

const SAMPLES: [&str; 7] = [
    "rich.couch.1",
    "s10_json.couch.1",
    "s1k_10commits.couch.1",
    "s1k_10commits_compacted.couch.2",
    "s200_v11_legacycrc.couch.1",
    "s200_v12.couch.1",
    "s200_v13.couch.1",
];

fn open(name: &str) -> Snapshot {
    Snapshot::open(&PosixDisk, &golden_path(name), &Options::default()).expect("a sound file")
}

fn nodes(snapshot: &Snapshot, tree: TreeKind) -> Vec<TreeNode> {
    let nodes: Result<_, _> = snapshot.nodes_of(tree).collect();
    nodes.expect("a sound tree")
}

/// Formats a pointer like the tools: bytes of the subtree, and the reduce value as in the file.
fn pointer_text(subtree_bytes: u64, totals: SubtreeTotals) -> String {
    let SubtreeTotals::ById {
        live,
        deleted,
        body_bytes,
    } = totals
    else {
        panic!("{totals:?}");
    };
    let digits = format!("{live:010x}{deleted:010x}{body_bytes:012x}");
    let mut words = String::new();
    for at in (0..digits.len()).step_by(8) {
        let _ = write!(words, "{} ", &digits[at..at + 8]);
    }
    format!("+ ({subtree_bytes}) {{{words}}}")
}

/// Returns the dump of a tree by id.
fn dump(name: &str, snapshot: &Snapshot) -> String {
    let header = snapshot.header();
    let mut text = format!("Dumping \"{name}\":\n");
    let mut documents = 0;
    let mut pointers: HashMap<Offset, String> = HashMap::new();
    let root = SubtreeTotals::ById {
        live: header.live_count(),
        deleted: header.deleted_count(),
        body_bytes: header.body_bytes(),
    };
    for node in nodes(snapshot, TreeKind::ById) {
        let indent = 2 * node.depth();
        let pointer = pointers
            .remove(&node.offset())
            .unwrap_or_else(|| pointer_text(header.tree_bytes().by_id, root));
        let _ = writeln!(text, "{:indent$}{pointer}", "");
        for item in node.items() {
            match item {
                NodeItem::Subtree {
                    offset,
                    subtree_bytes,
                    totals,
                    ..
                } => {
                    pointers.insert(offset, pointer_text(subtree_bytes, totals));
                }
                NodeItem::Document(entry) => {
                    documents += 1;
                    let mark = if entry.is_deleted() { 'x' } else { '*' };
                    let sizes = (entry.disk_bytes(), entry.rev_meta().len());
                    let key = DiskKey::decode(entry.key()).expect("a key");
                    let key = print_key(&key);
                    let _ = write!(text, "{:indent$}  {mark} ({},{})", "", sizes.0, sizes.1);
                    let _ = writeln!(text, "  id:{key}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
    let _ = writeln!(text, "\nTotal docs: {documents}");
    text
}

#[test]
fn tree_by_id_matches_the_tools_dump() {
    for name in SAMPLES {
        let path = golden_path("dumps").join(format!("{name}.idtree.txt"));
        let expected = std::fs::read_to_string(path).expect("a dump");
        assert_eq!(dump(name, &open(name)), expected, "{name}");
    }
}

#[test]
fn nodes_of_every_tree_are_iterated() {
    for name in SAMPLES {
        let snapshot = open(name);
        let header = snapshot.header();
        let documents = header.live_count() + header.deleted_count();
        let locals = snapshot.locals().expect("a scan").count() as u64;
        for (tree, bytes, leaves) in [
            (TreeKind::ById, header.tree_bytes().by_id, documents),
            (TreeKind::BySeqno, header.tree_bytes().by_seqno, documents),
            (TreeKind::Local, header.tree_bytes().local, locals),
        ] {
            let nodes = nodes(&snapshot, tree);
            let sum: u64 = nodes.iter().map(TreeNode::disk_bytes).sum();
            assert_eq!(sum, bytes, "{name} {tree:?}");
            let found = nodes.iter().filter(|node| node.is_leaf());
            let found: usize = found.map(|node| node.items().count()).sum();
            assert_eq!(found as u64, leaves, "{name} {tree:?}");
            let inflated = nodes.iter().all(|node| node.plain_bytes() > 6);
            assert!(inflated, "{name} {tree:?}");
        }
    }
}
