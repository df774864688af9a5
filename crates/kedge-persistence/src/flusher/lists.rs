//! The queues of vBuckets that wait for their flusher.

use kedge_sync::{
    RankedMutex,
    ranks::{FlusherLists, FlusherRank},
};
use kedge_types::{Now, Seqno, VbId};
use kedge_vbucket::CompletedCommand;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The delay of a flush that no command waits for and that loses nothing in a crash: the commit of a prepare that is in
/// the file. It is written with the next change of its vBucket, or after this time. A vBucket whose file could not be
/// written is retried after the same time.
const DEFERRAL: Duration = Duration::from_secs(1);
/// The delay of a flush of a file that is in use, for example by a compaction that copies its last entries.
const BUSY_RETRY: Duration = Duration::from_millis(10);

/// All flushers of a bucket.
#[derive(Debug)]
pub(crate) struct Flushers {
    pub(super) shards: Box<[FlusherShard]>,
    pub(super) states: Box<[VbFlushState]>,
    /// True if the bucket is closing, so that no flush waits for its interval.
    pub(super) is_closing: AtomicBool,
}

/// The flush state of a vBucket.
#[derive(Debug, Default)]
pub(super) struct VbFlushState {
    /// True if the vBucket has changes to write soon. The entry in a queue may be obsolete.
    pub(super) is_dirty: AtomicBool,
    pub(super) is_queued: AtomicBool,
    pub(super) is_urgent: AtomicBool,
    pub(super) is_deferred: AtomicBool,
    /// The time of the oldest change, in nanoseconds of the monotonic clock.
    pub(super) since_ns: AtomicU64,
}

/// A flusher, and the requests to it.
#[derive(Debug, Default)]
pub(super) struct FlusherShard {
    lists: RankedMutex<FlusherLists, FlushRequests>,
    pub(super) flusher: RankedMutex<FlusherRank, Flusher>,
    /// True if commands wait for which no flush has been requested yet.
    pub(super) has_new_waiters: AtomicBool,
}

/// vBuckets that are not in the flusher's queues yet.
#[derive(Debug, Default)]
struct FlushRequests {
    queued: Vec<VbId>,
    urgent: Vec<VbId>,
}

/// The queues of a flusher, and the results of its last commit.
#[derive(Debug, Default)]
pub(crate) struct Flusher {
    /// vBuckets that commands wait for.
    pub(super) urgent: VecDeque<VbId>,
    /// vBuckets that wait for the interval.
    pub(super) queued: VecDeque<VbId>,
    /// The number of vBuckets of `queued` that are to be written now.
    pub(super) due: usize,
    /// Deferred vBuckets in the order of their time: the time in nanoseconds of the monotonic clock, the vBucket, and
    /// whether the flush is a retry.
    pub(super) deferred: VecDeque<(u64, VbId, bool)>,
    /// True if the last flushed vBucket was an urgent one.
    pub(super) was_last_urgent: bool,
    /// True if all changes are to be flushed, so that the flusher waits for files that are in use.
    pub(super) is_draining: bool,
    pub(super) done: Vec<CompletedCommand>,
    pub(super) acks: Vec<(VbId, Seqno)>,
}

impl Flushers {
    pub(crate) fn new(shards: u16, vbuckets: u16) -> Self {
        Self {
            shards: (0..shards).map(|_| FlusherShard::default()).collect(),
            states: (0..vbuckets).map(|_| VbFlushState::default()).collect(),
            is_closing: AtomicBool::new(false),
        }
    }

    pub(super) fn shard_of(&self, vb: VbId) -> usize {
        vb.index() % self.shards.len()
    }

    /// Queues a vBucket that has changes since `now_ns`. Returns the index of its flusher.
    pub(crate) fn push(&self, vb: VbId, now_ns: u64) -> usize {
        let (state, shard) = (&self.states[vb.index()], self.shard_of(vb));
        state.since_ns.store(now_ns, Ordering::Relaxed);
        state.is_dirty.store(true, Ordering::SeqCst);
        if !state.is_queued.swap(true, Ordering::SeqCst) {
            self.shards[shard].lists.lock().queued.push(vb);
        }
        shard
    }

    /// Queues a vBucket that a command waits for.
    pub(crate) fn request_urgent(&self, vb: VbId) {
        let (state, shard) = (&self.states[vb.index()], &self.shards[self.shard_of(vb)]);
        if !state.is_urgent.swap(true, Ordering::SeqCst) {
            shard.lists.lock().urgent.push(vb);
        }
        shard.has_new_waiters.store(true, Ordering::SeqCst);
    }

    /// Returns the indexes of the flushers that commands wait for. The caller wakes them.
    pub(crate) fn take_waiting_lanes(&self) -> impl Iterator<Item = usize> {
        let shards = self.shards.iter().enumerate();
        let waiting =
            shards.filter(|(_, shard)| shard.has_new_waiters.swap(false, Ordering::SeqCst));
        waiting.map(|(lane, _)| lane)
    }

    /// Returns whether, since the last [`Flushers::take_requests`], a command has begun to wait for a vBucket of the
    /// same flusher.
    pub(super) fn has_urgent_request(&self, vb: VbId) -> bool {
        let lists = self.shards[self.shard_of(vb)].lists.lock();
        !lists.urgent.is_empty()
    }

    /// Moves new requests to the flusher's queues.
    pub(super) fn take_requests(&self, shard: &FlusherShard, flusher: &mut Flusher) {
        let mut lists = shard.lists.lock();
        flusher.urgent.extend(lists.urgent.drain(..));
        flusher.queued.extend(lists.queued.drain(..));
    }

    /// Defers a vBucket whose file is in use. The age of its changes stays the same.
    pub(super) fn defer_busy(&self, flusher: &mut Flusher, vb: VbId, now: Now) {
        self.states[vb.index()]
            .is_deferred
            .store(true, Ordering::SeqCst);
        let due_ns = now.mono_ns + BUSY_RETRY.as_nanos() as u64;
        flusher.deferred.push_front((due_ns, vb, true));
    }

    pub(super) fn defer(&self, flusher: &mut Flusher, vb: VbId, now: Now, is_retry: bool) {
        let state = &self.states[vb.index()];
        if !state.is_deferred.swap(true, Ordering::SeqCst) || is_retry {
            let due_ns = now.mono_ns + DEFERRAL.as_nanos() as u64;
            flusher.deferred.push_back((due_ns, vb, is_retry));
        }
    }
}
