//! A header as one line.

use kedge_couchstore::{Previous, Snapshot};
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(super) struct HeaderLine {
    header: u64,
    version: u8,
    update_seqno: u64,
    purge_seqno: u64,
    /// The time of the header; 0 before version 13.
    timestamp_ns: u64,
    /// The link to the previous header; nothing before version 14.
    previous: Option<u64>,
    encrypted: bool,
    live: u64,
    deleted: u64,
    body_bytes: u64,
    tree_bytes: TreeBytesLine,
    used_bytes: u64,
}

#[derive(Debug, Serialize)]
struct TreeBytesLine {
    by_id: u64,
    by_seqno: u64,
    local: u64,
}

impl HeaderLine {
    pub(super) const fn version(&self) -> u8 {
        self.version
    }

    pub(super) fn new(snapshot: &Snapshot) -> Self {
        let header = snapshot.header();
        let trees = header.tree_bytes();
        HeaderLine {
            header: header.offset().0,
            version: header.version().number(),
            update_seqno: header.update_seqno().get(),
            purge_seqno: header.purge_seqno().get(),
            timestamp_ns: header.timestamp_ns(),
            previous: match header.previous() {
                Previous::At(offset) => Some(offset.0),
                Previous::None | Previous::Unknown => None,
            },
            encrypted: header.is_encrypted(),
            live: header.live_count(),
            deleted: header.deleted_count(),
            body_bytes: header.body_bytes(),
            tree_bytes: TreeBytesLine {
                by_id: trees.by_id,
                by_seqno: trees.by_seqno,
                local: trees.local,
            },
            used_bytes: header.used_bytes(),
        }
    }
}
