//! The status of replication: seen by management and statistics, written by the thread that does it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kedge_node::coordination::{LinkStatus, PeerAddress, StreamPhase};
use kedge_sync::{
    RankedCondvar, RankedMutex,
    ranks::{LinkBoard, ReplicationBoard},
};

/// The totals of all links so far.
#[derive(Debug, Default)]
pub(super) struct LinkTotals {
    pub(super) connects: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) items: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) rollbacks: AtomicU64,
    pub(super) takeovers: AtomicU64,
    pub(super) acks: AtomicU64,
    pub(super) copy_bytes: AtomicU64,
    /// vBuckets that were filled with files.
    pub(super) files: AtomicU64,
    /// Bytes of parts of files that arrived.
    pub(super) file_bytes: AtomicU64,
    /// Copies of files that failed.
    pub(super) file_failures: AtomicU64,
}

impl LinkTotals {
    /// Adds to a total.
    pub(super) fn add(total: &AtomicU64, count: u64) {
        total.fetch_add(count, Ordering::Relaxed);
    }
}

/// The status that one link publishes.
pub(super) type LinkStatusCell = Arc<RankedMutex<LinkBoard, LinkStatus>>;

/// The status of all links.
#[derive(Default)]
pub(super) struct ReplicationStatus {
    /// The links with the names of their peers.
    status_board: RankedMutex<ReplicationBoard, Vec<(String, LinkStatusCell)>>,
    /// Notified when a link is removed.
    changed: RankedCondvar,
    pub(super) totals: Arc<LinkTotals>,
}

impl ReplicationStatus {
    pub(super) fn put_up(&self, bucket: &str, peer: &PeerAddress) -> LinkStatusCell {
        let board = Arc::new(RankedMutex::new(LinkStatus {
            bucket: bucket.to_owned(),
            peer: peer.clone(),
            connected: false,
            connects: 0,
            last_error: None,
            items: 0,
            bytes: 0,
            copy_bytes_per_sec: 0,
            vbuckets: BTreeMap::new(),
        }));
        self.status_board
            .lock()
            .push((peer.name.clone(), board.clone()));
        board
    }

    pub(super) fn take_down(&self, board: &LinkStatusCell) {
        self.status_board
            .lock()
            .retain(|(_, kept)| !Arc::ptr_eq(kept, board));
        self.changed.notify_all();
    }

    /// Waits until there is no link to a peer. Returns false on a timeout.
    pub(super) fn wait_gone(&self, peer: &str, patience: Duration) -> bool {
        let mut status_board = self.status_board.lock();
        let is_there = |status_board: &mut Vec<(String, LinkStatusCell)>| {
            status_board.iter().any(|(name, _)| name == peer)
        };
        let wait = self
            .changed
            .wait_while_for(&mut status_board, is_there, patience);
        !wait.timed_out()
    }

    pub(super) fn read(&self) -> Vec<LinkStatus> {
        let status_board = self.status_board.lock().clone();
        status_board
            .iter()
            .map(|(_, board)| board.lock().clone())
            .collect()
    }

    /// Calls `each` with the name and value of every figure of all links together.
    pub(super) fn stats(&self, each: &mut dyn FnMut(&str, &str)) {
        let status_board = self.status_board.lock().clone();
        let (mut up, mut vbuckets, mut following, mut behind) = (0, 0, 0, 0);
        let mut copy_limit = 0;
        for (_, board) in &status_board {
            let board = board.lock();
            up += u64::from(board.connected);
            copy_limit += u64::from(board.connected) * board.copy_bytes_per_sec;
            vbuckets += board.vbuckets.len() as u64;
            for vb in board.vbuckets.values() {
                following += u64::from(vb.phase == StreamPhase::Streaming);
                behind += vb.behind();
            }
        }
        let load = |total: &AtomicU64| total.load(Ordering::Relaxed);
        let totals = &self.totals;
        for (name, value) in [
            ("replication_links", status_board.len() as u64),
            ("replication_links_up", up),
            ("replication_vbuckets", vbuckets),
            ("replication_following", following),
            ("replication_items_behind", behind),
            ("replication_connects", load(&totals.connects)),
            ("replication_failures", load(&totals.failures)),
            ("replication_items", load(&totals.items)),
            ("replication_bytes", load(&totals.bytes)),
            ("replication_acks", load(&totals.acks)),
            ("replication_rollbacks", load(&totals.rollbacks)),
            ("replication_takeovers", load(&totals.takeovers)),
            ("replication_copy_bytes", load(&totals.copy_bytes)),
            ("replication_copy_bytes_per_sec_max", copy_limit),
            ("replication_files", load(&totals.files)),
            ("replication_file_bytes", load(&totals.file_bytes)),
            ("replication_file_failures", load(&totals.file_failures)),
        ] {
            each(name, &value.to_string());
        }
    }
}
