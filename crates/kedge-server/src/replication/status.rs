//! What replication is doing: seen by management and statistics, written by the thread that does it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kedge_types::{Seqno, VbId};
use parking_lot::{Condvar, Mutex};

use super::Peer;

/// What becomes of a vBucket that is to be replicated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamPhase {
    /// It waits for the connection, or for another try.
    #[default]
    Waiting,
    /// The peer was asked for it.
    Asked,
    /// It follows the peer.
    Streaming,
    /// It goes back to what it shares with the peer.
    RollingBack,
    /// It has all that the peer had and is to be active.
    TakenOver,
}

impl StreamPhase {
    /// Its name in statistics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Asked => "asked",
            Self::Streaming => "streaming",
            Self::RollingBack => "rolling_back",
            Self::TakenOver => "taken_over",
        }
    }
}

/// What is known of a vBucket that is replicated to here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamStatus {
    /// What becomes of it.
    pub phase: StreamPhase,
    /// The last seqno that came.
    pub received: Seqno,
    /// End of the last snapshot that began: the peer has at least this seqno.
    pub announced: Seqno,
    /// The last prepare that was acknowledged.
    pub acknowledged: Seqno,
    /// Times that it went back.
    pub rollbacks: u64,
    /// Why it was last refused or ended.
    pub last_error: Option<String>,
}

impl StreamStatus {
    /// Seqnos of the snapshot under way that have not come.
    #[must_use]
    pub fn behind(&self) -> u64 {
        self.announced.get().saturating_sub(self.received.get())
    }
}

/// What is known of a connection to a peer for a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkStatus {
    /// The bucket.
    pub bucket: String,
    /// The peer.
    pub peer: Peer,
    /// Whether there is a connection.
    pub connected: bool,
    /// Connections there were.
    pub connects: u64,
    /// Why there was none, or the last one ended.
    pub last_error: Option<String>,
    /// Changes that came.
    pub items: u64,
    /// Bytes that came.
    pub bytes: u64,
    /// Its vBuckets.
    pub vbuckets: BTreeMap<VbId, StreamStatus>,
}

/// What all links ever did, whether they are still there or not.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) connects: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) items: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) rollbacks: AtomicU64,
    pub(super) takeovers: AtomicU64,
    pub(super) acks: AtomicU64,
}

impl Totals {
    /// Only one thread counts.
    pub(super) fn add(total: &AtomicU64, count: u64) {
        total.fetch_add(count, Ordering::Relaxed);
    }
}

/// What one link shows of itself.
pub(super) type LinkStatusCell = Arc<Mutex<LinkStatus>>;

/// What all links show.
#[derive(Default)]
pub(super) struct ReplicationStatus {
    /// With the name of the peer.
    status_board: Mutex<Vec<(String, LinkStatusCell)>>,
    /// LinkMessage when one is taken down.
    changed: Condvar,
    pub(super) totals: Arc<Totals>,
}

impl ReplicationStatus {
    pub(super) fn put_up(&self, bucket: &str, peer: &Peer) -> LinkStatusCell {
        let board = Arc::new(Mutex::new(LinkStatus {
            bucket: bucket.to_owned(),
            peer: peer.clone(),
            connected: false,
            connects: 0,
            last_error: None,
            items: 0,
            bytes: 0,
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

    /// Waits until there is no link to a peer. `false`: there still is when the time is up.
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
        for (_, board) in &status_board {
            let board = board.lock();
            up += u64::from(board.connected);
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
        ] {
            each(name, &value.to_string());
        }
    }
}
