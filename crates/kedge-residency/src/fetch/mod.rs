//! Background fetch: commands that need what is on disk only wait here, until a task has read it.
//!
//! A step of a vBucket that cannot go on without the disk has changed nothing. Its command is kept as a [`Pending`] in
//! the queue of its vBucket; a task reads the keys of many of them with one look at the file, hands the vBucket what it
//! found, and runs the step again, once for each that waits: the client's command is not executed anew.
//!
//! Invariants:
//! * A vBucket with waiting commands stands in the turns of its lane, once; its task is awake, or about to be.
//! * One task reads for a vBucket at a time, and commands on a key go on in the order in which they came; one that only
//!   reads a value may pass them by: see `located`.
//! * Each command ends once, whatever becomes of its vBucket or its bucket: in the task, or when the bucket ends. Once
//!   closed, a queue takes no more.
//! * No vBucket is locked while its file is read.

mod counting;
mod keys;
mod limiter;
mod located;
mod op;
mod read;

pub use counting::{given_counters, outcome_counters};
pub use limiter::AdmissionLimiter;
pub use located::Fetch;
pub use op::{Op, PendingOp};
pub(crate) use read::Fetcher;

use crate::residency::Residency;
use kedge_bucket_core::Ctx;
use kedge_bucket_core::Outcome;
use kedge_bucket_core::Parker;
use kedge_bucket_core::Read;
use kedge_sync::{
    RankedMutex,
    ranks::{FetchQueue, FetchesLocated},
};
use kedge_types::{Status, VbId};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicU64;

/// Tasks that read, each for its part of the vBuckets. So many, that each thread of Reader finds one to run although
/// commands gather at some: they wait for the disk, and it serves many at once.
const LANES: u16 = 64;
/// Keys of one look at a file; a turn of a vBucket.
const BATCH_MAX: usize = 128;

/// All that waits for the disk.
#[derive(Debug)]
pub(crate) struct Fetches {
    lanes: Box<[Lane]>,
    /// By front-end thread: what it is to read itself.
    located: Box<[RankedMutex<FetchesLocated, Vec<Fetch>>]>,
    limiter: AdmissionLimiter,
    /// When a failure was said last.
    said_ns: AtomicU64,
}

/// The vBuckets of one task.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    queue: RankedMutex<FetchQueue, Queue>,
    pub(crate) parker: Parker,
}

#[derive(Debug, Default)]
struct Queue {
    /// vBuckets in the order of their turns.
    turns: VecDeque<VbId>,
    waiting: HashMap<VbId, VecDeque<PendingOp>>,
    closed: bool,
}

impl Queue {
    /// What of the vBucket whose turn it is fits in a look at its file.
    fn take(&mut self) -> Option<(VbId, Vec<PendingOp>)> {
        let vb = self.turns.pop_front()?;
        let mut all = self.waiting.remove(&vb)?;
        let rest = all.split_off(all.len().min(BATCH_MAX));
        if !rest.is_empty() {
            self.waiting.insert(vb, rest);
            self.turns.push_back(vb);
        }
        Some((vb, all.into()))
    }

    fn put(&mut self, vb: VbId, pending: PendingOp) {
        let waiting = self.waiting.entry(vb).or_default();
        if waiting.is_empty() {
            self.turns.push_back(vb);
        }
        waiting.push_back(pending);
    }

    /// They have to be read again, before those that came later.
    fn put_back(&mut self, vb: VbId, again: Vec<PendingOp>) {
        let waiting = self.waiting.entry(vb).or_default();
        if waiting.is_empty() {
            self.turns.push_back(vb);
        }
        for pending in again.into_iter().rev() {
            waiting.push_front(pending);
        }
    }
}

impl Fetches {
    pub(crate) fn new(vbuckets: u16, threads: u16) -> Self {
        Self {
            lanes: (0..LANES.min(vbuckets)).map(|_| Lane::default()).collect(),
            located: (0..threads).map(|_| RankedMutex::default()).collect(),
            limiter: AdmissionLimiter::default(),
            said_ns: AtomicU64::new(0),
        }
    }

    pub(crate) fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// Commands that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.limiter.waiting()
    }

    fn lane_of(&self, vb: VbId) -> &Lane {
        &self.lanes[vb.index() % self.lanes.len()]
    }

    /// Takes no more, and gives what waits.
    fn close(&self) -> Vec<PendingOp> {
        let mut all = Vec::new();
        for lane in &self.lanes {
            let mut queue = lane.queue.lock();
            queue.closed = true;
            queue.turns.clear();
            all.extend(queue.waiting.drain().flat_map(|(_, waiting)| waiting));
        }
        for of_thread in &self.located {
            all.extend(of_thread.lock().drain(..).map(Fetch::into_pending));
        }
        for pending in &all {
            self.limiter.end(pending);
        }
        all
    }
}

impl Residency {
    /// A read whose step says that the disk is needed: it is parked.
    pub fn fetch<R>(
        &self,
        ctx: Ctx,
        wanted: &Read<'_>,
        op: impl Into<Op>,
    ) -> Result<Outcome<R>, Status> {
        let pending = PendingOp::read(ctx, wanted, op);
        self.signals
            .fetches
            .limiter
            .admit(&pending, self.core.quota.limit())?;
        match self.locate(ctx.thread, wanted.vb, pending) {
            None => Ok(Outcome::Parked),
            Some(pending) => self.queue_for_fetch(wanted.vb, pending),
        }
    }

    /// Parks a command that needs the disk.
    ///
    /// # Errors
    /// `TemporaryFailure` when too many wait, or the bucket ends.
    pub fn park_for_fetch<R>(&self, vb: VbId, pending: PendingOp) -> Result<Outcome<R>, Status> {
        self.signals
            .fetches
            .limiter
            .admit(&pending, self.core.quota.limit())?;
        self.queue_for_fetch(vb, pending)
    }

    /// A command that was admitted.
    fn queue_for_fetch<R>(&self, vb: VbId, pending: PendingOp) -> Result<Outcome<R>, Status> {
        let fetches = &self.signals.fetches;
        let lane = fetches.lane_of(vb);
        let mut queue = lane.queue.lock();
        if queue.closed {
            drop(queue);
            fetches.limiter.end(&pending);
            return Err(Status::TemporaryFailure);
        }
        queue.put(vb, pending);
        drop(queue);
        self.unpark_fetcher(lane);
        Ok(Outcome::Parked)
    }

    fn unpark_fetcher(&self, lane: &Lane) {
        if let Some(task) = lane.parker.unpark() {
            self.core.setup.executor.wake(task);
        }
    }

    /// The bucket ends, and its tasks have: who still waits is told.
    pub fn end_fetches(&self) {
        let ended = self.signals.fetches.close();
        let mut completions: Vec<_> = ended
            .iter()
            .map(|pending| (pending.cookie, pending.op.failed(Status::TemporaryFailure)))
            .collect();
        if !completions.is_empty() {
            self.core.setup.completions.complete(&mut completions);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kedge_types::{Cas, CollectionId, DocKey};
    use kedge_vbucket::{Cookie, DocOp};

    pub(super) fn pending(cookie: u64, op: DocOp<'static>) -> PendingOp {
        PendingOp {
            key: DocKey::new(CollectionId::DEFAULT, b"key").unwrap(),
            cookie: Cookie(cookie),
            cas: Cas(0),
            durability: None,
            new_cas: Cas(0),
            preserve_ttl: false,
            op: op.into(),
            since_ns: 0,
            attempts: 0,
        }
    }

    fn cookies(of: &[PendingOp]) -> Vec<u64> {
        of.iter().map(|pending| pending.cookie.0).collect()
    }

    #[test]
    fn vbuckets_take_turns_and_keep_their_order() {
        let mut queue = Queue::default();
        let more = BATCH_MAX as u64 + 2;
        (0..more).for_each(|n| queue.put(VbId(1), pending(n, DocOp::Get)));
        queue.put(VbId(2), pending(1_000, DocOp::Get));
        let (vb, first) = queue.take().unwrap();
        assert_eq!((vb, first.len()), (VbId(1), BATCH_MAX));
        assert_eq!(queue.take().unwrap().0, VbId(2));
        queue.put_back(VbId(1), first.into_iter().take(2).collect());
        let (vb, second) = queue.take().unwrap();
        assert_eq!(vb, VbId(1));
        assert_eq!(cookies(&second), [0, 1, more - 2, more - 1]);
        assert!(queue.take().is_none());
    }
}
