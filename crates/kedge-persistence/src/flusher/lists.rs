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
const LATER: Duration = Duration::from_secs(1);
/// So long rests a vBucket whose file somebody has just then: a compaction has it for its last few entries.
const IN_THE_WAY: Duration = Duration::from_millis(10);

/// All flushers of a bucket.
#[derive(Debug)]
pub(crate) struct Flushers {
    pub(super) shards: Box<[Shard]>,
    pub(super) states: Box<[VbFlushState]>,
    /// The bucket ends: nothing waits for its interval.
    pub(super) hurry: AtomicBool,
}

/// Where a vBucket stands.
#[derive(Debug, Default)]
pub(super) struct VbFlushState {
    /// It has changes that are to be written soon: what a queue says may be done already.
    pub(super) dirty: AtomicBool,
    pub(super) plain: AtomicBool,
    pub(super) waited: AtomicBool,
    pub(super) later: AtomicBool,
    /// Since when it has changes.
    pub(super) since_ns: AtomicU64,
}

/// A flusher, and the way to it.
#[derive(Debug, Default)]
pub(super) struct Shard {
    lists: RankedMutex<FlusherLists, Lists>,
    pub(super) flusher: RankedMutex<FlusherRank, Flusher>,
    /// Someone waits, and nobody has requested since.
    pub(super) is_waited: AtomicBool,
}

/// vBuckets that are not in the flusher's queues yet.
#[derive(Debug, Default)]
struct Lists {
    plain: Vec<VbId>,
    waited: Vec<VbId>,
}

/// What a flusher works on.
#[derive(Debug, Default)]
pub(crate) struct Flusher {
    /// Someone waits for these.
    pub(super) waited: VecDeque<VbId>,
    /// Nobody does.
    pub(super) plain: VecDeque<VbId>,
    /// So many of `plain` are to be written now.
    pub(super) round: usize,
    /// When the time of these comes, in this order, and whether they were tried before.
    pub(super) later: VecDeque<(u64, VbId, bool)>,
    /// One that someone waits for came last.
    pub(super) was_waited: bool,
    /// Everything is to be flushed: also what is in the way is waited for.
    pub(super) waits: bool,
    pub(super) done: Vec<Done>,
    pub(super) acks: Vec<(VbId, Seqno)>,
}

impl Flushers {
    pub(crate) fn new(shards: u16, vbuckets: u16) -> Self {
        Self {
            shards: (0..shards).map(|_| Shard::default()).collect(),
            states: (0..vbuckets).map(|_| VbFlushState::default()).collect(),
            hurry: AtomicBool::new(false),
        }
    }

    pub(super) fn shard_of(&self, vb: VbId) -> usize {
        vb.index() % self.shards.len()
    }

    /// A vBucket has changes, since now.
    pub(crate) fn push(&self, vb: VbId, now_ns: u64) -> usize {
        let (mark, shard) = (&self.states[vb.index()], self.shard_of(vb));
        mark.since_ns.store(now_ns, Ordering::Relaxed);
        mark.dirty.store(true, Ordering::SeqCst);
        if !mark.plain.swap(true, Ordering::SeqCst) {
            self.shards[shard].lists.lock().plain.push(vb);
        }
        shard
    }

    /// Someone waits for a vBucket.
    pub(crate) fn wait_for(&self, vb: VbId) {
        let (mark, shard) = (&self.states[vb.index()], &self.shards[self.shard_of(vb)]);
        if !mark.waited.swap(true, Ordering::SeqCst) {
            shard.lists.lock().waited.push(vb);
        }
        shard.is_waited.store(true, Ordering::SeqCst);
    }

    /// The flushers that commands wait for; the caller wakes them.
    pub(crate) fn take_waited(&self) -> impl Iterator<Item = usize> {
        let shards = self.shards.iter().enumerate();
        let waited = shards.filter(|(_, shard)| shard.is_waited.swap(false, Ordering::SeqCst));
        waited.map(|(lane, _)| lane)
    }

    /// Whether someone waits for a vBucket of the same flusher as this one, since the last [`Flushers::fetch`].
    pub(super) fn has_waited(&self, vb: VbId) -> bool {
        let lists = self.shards[self.shard_of(vb)].lists.lock();
        !lists.waited.is_empty()
    }

    /// Fetches what was listed since the last time.
    pub(super) fn fetch(&self, shard: &Shard, flusher: &mut Flusher) {
        let mut lists = shard.lists.lock();
        flusher.waited.extend(lists.waited.drain(..));
        flusher.plain.extend(lists.plain.drain(..));
    }

    /// Somebody has the vBucket's file. Its changes stay as old as they are.
    pub(super) fn put_off(&self, flusher: &mut Flusher, vb: VbId, now: Now) {
        self.states[vb.index()].later.store(true, Ordering::SeqCst);
        let due_ns = now.mono_ns + IN_THE_WAY.as_nanos() as u64;
        flusher.later.push_front((due_ns, vb, true));
    }

    pub(super) fn put_later(&self, flusher: &mut Flusher, vb: VbId, now: Now, tried: bool) {
        let mark = &self.states[vb.index()];
        if !mark.later.swap(true, Ordering::SeqCst) || tried {
            let due_ns = now.mono_ns + LATER.as_nanos() as u64;
            flusher.later.push_back((due_ns, vb, tried));
        }
    }
}
