//! A node of a tree as one line.

use kedge_couchstore::{NodeItem, SubtreeTotals, TreeNode};
use serde::Serialize;

use super::super::text::{PrintedBytes, to_hex};

#[derive(Debug, Serialize)]
pub(super) struct NodeLine {
    tree: &'static str,
    offset: u64,
    depth: usize,
    node: &'static str,
    disk_bytes: u64,
    plain_bytes: usize,
    entries: Vec<EntryLine>,
}

/// A node's information about one key. Fields without a value are left out. Keys of documents are hex digits, as
/// `--hex` takes them.
#[derive(Debug, Default, Serialize)]
struct EntryLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<PrintedBytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seqno: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    /// The offset of a subtree's topmost node, or of a body.
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    /// The length of a body, or of the contents of a local document, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subtree_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    totals: Option<TotalsLine>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum TotalsLine {
    ById {
        live: u64,
        deleted: u64,
        body_bytes: u64,
    },
    BySeqno {
        count: u64,
    },
}

impl NodeLine {
    pub(super) fn new(tree: &'static str, node: &TreeNode) -> Self {
        NodeLine {
            tree,
            offset: node.offset().0,
            depth: node.depth(),
            node: if node.is_leaf() { "leaf" } else { "interior" },
            disk_bytes: node.disk_bytes(),
            plain_bytes: node.plain_bytes(),
            entries: node.items().map(entry).collect(),
        }
    }
}

fn entry(item: NodeItem) -> EntryLine {
    let empty = EntryLine::default();
    match item {
        NodeItem::Document(entry) => EntryLine {
            seqno: Some(entry.seqno().get()),
            key_hex: Some(to_hex(entry.key())),
            offset: entry.body_offset().map(|offset| offset.0),
            bytes: Some(entry.disk_bytes().into()),
            deleted: Some(entry.is_deleted()),
            ..empty
        },
        NodeItem::Local { name, value } => EntryLine {
            name: Some(PrintedBytes::plain(&name)),
            bytes: Some(value.len() as u64),
            ..empty
        },
        NodeItem::Subtree {
            last_key,
            offset,
            subtree_bytes,
            totals,
        } => EntryLine {
            offset: Some(offset.0),
            subtree_bytes: Some(subtree_bytes),
            ..last_key_of(&last_key, totals)
        },
        _ => empty,
    }
}

fn last_key_of(last_key: &[u8], totals: SubtreeTotals) -> EntryLine {
    let empty = EntryLine::default();
    match totals {
        SubtreeTotals::ById {
            live,
            deleted,
            body_bytes,
        } => EntryLine {
            key_hex: Some(to_hex(last_key)),
            totals: Some(TotalsLine::ById {
                live,
                deleted,
                body_bytes,
            }),
            ..empty
        },
        SubtreeTotals::BySeqno { count } => EntryLine {
            seqno: Some(last_key.iter().fold(0, |n, byte| n << 8 | u64::from(*byte))),
            totals: Some(TotalsLine::BySeqno { count }),
            ..empty
        },
        SubtreeTotals::Local => EntryLine {
            name: Some(PrintedBytes::plain(last_key)),
            ..empty
        },
    }
}
