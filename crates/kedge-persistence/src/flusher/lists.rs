//! Which vBuckets wait for their flusher, and why.

use kedge_sync::{
    RankedMutex,
    ranks::{FlusherLists, FlusherRank},
};
use kedge_types::{Now, Seqno, VbId};
use kedge_vbucket::Done;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Nobody waits for the commit of a prepare that is in the file, nor is it lost with the process. It goes with the next
/// change of its vBucket, or after this time by itself. So long also rests a vBucket whose file could not be written.
const DEFERRAL: Duration = Duration::from_secs(1);
/// So long rests a vBucket whose file somebody has just then: a compaction has it for its last few entries.
const BUSY_RETRY: Duration = Duration::from_millis(10);

/// All flushers of a bucket.
#[derive(Debug)]
pub(crate) struct Flushers {
    pub(super) shards: Box<[FlusherShard]>,
    pub(super) states: Box<[VbFlushState]>,
    /// The bucket ends: nothing waits for its interval.
    pub(super) is_closing: AtomicBool,
}

/// Where a vBucket stands.
#[derive(Debug, Default)]
pub(super) struct VbFlushState {
    /// It has changes that are to be written soon: what a queue says may be done already.
    pub(super) is_dirty: AtomicBool,
    pub(super) is_queued: AtomicBool,
    pub(super) is_urgent: AtomicBool,
    pub(super) is_deferred: AtomicBool,
    /// Since when it has changes.
    pub(super) since_ns: AtomicU64,
}

/// A flusher, and the way to it.
#[derive(Debug, Default)]
pub(super) struct FlusherShard {
    lists: RankedMutex<FlusherLists, FlushRequests>,
    pub(super) flusher: RankedMutex<FlusherRank, Flusher>,
    /// Someone waits, and nobody has requested since.
    pub(super) has_new_waiters: AtomicBool,
}

/// vBuckets that are not in the flusher's queues yet.
#[derive(Debug, Default)]
struct FlushRequests {
    queued: Vec<VbId>,
    urgent: Vec<VbId>,
}

/// What a flusher works on.
#[derive(Debug, Default)]
pub(crate) struct Flusher {
    /// Someone waits for these.
    pub(super) urgent: VecDeque<VbId>,
    /// Nobody does.
    pub(super) queued: VecDeque<VbId>,
    /// So many of `plain` are to be written now.
    pub(super) due: usize,
    /// When the time of these comes, in this order, and whether they were is_retry before.
    pub(super) deferred: VecDeque<(u64, VbId, bool)>,
    /// One that someone waits for came last.
    pub(super) was_last_urgent: bool,
    /// Everything is to be flushed: also what is in the way is waited for.
    pub(super) is_draining: bool,
    pub(super) done: Vec<Done>,
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

    /// A vBucket has changes, since now.
    pub(crate) fn push(&self, vb: VbId, now_ns: u64) -> usize {
        let (state, shard) = (&self.states[vb.index()], self.shard_of(vb));
        state.since_ns.store(now_ns, Ordering::Relaxed);
        state.is_dirty.store(true, Ordering::SeqCst);
        if !state.is_queued.swap(true, Ordering::SeqCst) {
            self.shards[shard].lists.lock().queued.push(vb);
        }
        shard
    }

    /// Someone waits for a vBucket.
    pub(crate) fn request_urgent(&self, vb: VbId) {
        let (state, shard) = (&self.states[vb.index()], &self.shards[self.shard_of(vb)]);
        if !state.is_urgent.swap(true, Ordering::SeqCst) {
            shard.lists.lock().urgent.push(vb);
        }
        shard.has_new_waiters.store(true, Ordering::SeqCst);
    }

    /// The flushers that commands wait for; the caller wakes them.
    pub(crate) fn take_waiting_lanes(&self) -> impl Iterator<Item = usize> {
        let shards = self.shards.iter().enumerate();
        let waited =
            shards.filter(|(_, shard)| shard.has_new_waiters.swap(false, Ordering::SeqCst));
        waited.map(|(lane, _)| lane)
    }

    /// Whether someone waits for a vBucket of the same flusher as this one, since the last [`Flushers::fetch`].
    pub(super) fn has_urgent_request(&self, vb: VbId) -> bool {
        let lists = self.shards[self.shard_of(vb)].lists.lock();
        !lists.urgent.is_empty()
    }

    /// Fetches what was listed since the last time.
    pub(super) fn take_requests(&self, shard: &FlusherShard, flusher: &mut Flusher) {
        let mut lists = shard.lists.lock();
        flusher.urgent.extend(lists.urgent.drain(..));
        flusher.queued.extend(lists.queued.drain(..));
    }

    /// Somebody has the vBucket's file. Its changes stay as old as they are.
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
