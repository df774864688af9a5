//! Group commit: one append and one sync make durable what all vBuckets have waiting.
//!
//! Invariants:
//! * One thread commits at a time: who holds the lock of [`Committer`].
//! * A vBucket with changes for the log is in the dirty list or in the committer's queue, once.
//! * Seqnos are published as persisted, and parked commands completed, only after the sync returned.
//! * What could not be written stays where it was: cursors move only after the sync.
//!
//! Usually the log writer's thread commits. A front-end thread does so itself when nobody else of its connections
//! would be held up (see [`Bucket::kick`]), because waking another thread and being woken by it costs about as much as
//! the sync.

use crate::bucket::{Bucket, Phase};
use crate::error::BucketError;
use crate::record;
use crate::timings::Timing;
use kedge_log::{Batch, Log, LogError, Lsn};
use kedge_types::{Now, VbId};
use kedge_vbucket::{AfterLog, Change, Done, Position};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// How long the log writer waits before it tries a full disk again.
const DISK_FULL_RETRY: Duration = Duration::from_millis(100);

/// After this much quiet a mark is written behind the last batch.
const IDLE_MARK: Duration = Duration::from_secs(1);

/// A vBucket that has changes for the log, and since when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dirty {
    pub(crate) vb: VbId,
    pub(crate) since_ns: u64,
}

/// vBuckets that have changes for the log and are not in the committer's queue yet.
#[derive(Debug, Default)]
pub(crate) struct DirtyList {
    list: Mutex<Vec<Dirty>>,
}

impl DirtyList {
    pub(crate) fn push(&self, dirty: Dirty) {
        self.list.lock().push(dirty);
    }

    fn take_into(&self, queue: &mut VecDeque<Dirty>) {
        queue.extend(self.list.lock().drain(..));
    }

    fn is_empty(&self) -> bool {
        self.list.lock().is_empty()
    }
}

/// What a commit needs.
#[derive(Debug)]
pub(crate) struct Committer {
    pub(crate) log: Log,
    batch: Batch,
    queue: VecDeque<Dirty>,
    /// vBuckets with nothing but commits for the log, see [`AfterLog::CommitsOnly`].
    lazy: Vec<Dirty>,
    taken: Vec<Taken>,
    changes: Vec<Change>,
    done: Vec<Done>,
    /// The last batch met its limits: more was waiting than it could take.
    was_full: bool,
    /// Where the last reset of each vBucket stands in the log; 0 for none.
    resets: Box<[Lsn]>,
}

#[derive(Debug)]
struct Taken {
    dirty: Dirty,
    to: Position,
    reset: bool,
}

impl Committer {
    pub(crate) fn new(log: Log, resets: Box<[Lsn]>) -> Self {
        Self {
            log,
            batch: Batch::new(),
            queue: VecDeque::new(),
            lazy: Vec::new(),
            taken: Vec::new(),
            changes: Vec::new(),
            done: Vec::new(),
            was_full: false,
            resets,
        }
    }

    /// Whether something is left to write, now or later.
    fn has_work(&self) -> bool {
        !self.queue.is_empty() || !self.lazy.is_empty()
    }

    /// Ends the log: the last record says that the shutdown was clean.
    pub(crate) fn close(&mut self) -> Result<(), LogError> {
        self.batch.clear();
        self.batch.push(record::KIND_CLEAN, VbId(0), &[])?;
        self.log.append(&mut self.batch)?;
        self.log.mark()
    }
}

const RUNNING: u8 = 0;
/// Parked until the interval for changes that nobody waits for is over.
const TIMED: u8 = 1;
/// Parked until something is written.
const IDLE: u8 = 2;

/// How the log writer's thread is reached.
#[derive(Debug, Default)]
pub(crate) struct LogWriter {
    thread: OnceLock<Thread>,
    state: AtomicU8,
    urgent: AtomicBool,
    stop: AtomicBool,
}

impl LogWriter {
    /// A vBucket became dirty. Only an idle writer needs to hear of it.
    pub(crate) fn on_dirty(&self) {
        if self.state.load(Ordering::SeqCst) == IDLE {
            self.wake();
        }
    }

    /// Someone waits for a sync.
    fn on_urgent(&self) {
        self.urgent.store(true, Ordering::SeqCst);
        if self.state.load(Ordering::SeqCst) != RUNNING {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.wake();
    }
}

impl Bucket {
    /// To be called at the end of a turn in which a command was parked. With `lead` this thread may commit itself if
    /// the log is idle; it does so when no other connection of the thread would be held up. Completions come through
    /// the sink, before this returns when it led.
    pub fn kick(&self, lead: bool) {
        if lead
            && let Some(committer) = self.committer.get()
            && let Some(mut committer) = committer.try_lock()
        {
            let result = self.commit_once(&mut committer);
            let more = committer.has_work();
            drop(committer);
            self.on_commit_result(&result);
            if more {
                self.writer.on_dirty();
            }
            return;
        }
        self.writer.on_urgent();
    }

    /// The life of the log writer's thread.
    pub(crate) fn run_log_writer(&self) {
        let writer = &self.writer;
        writer.thread.get_or_init(std::thread::current);
        let mut was_full = false;
        while !writer.stop.load(Ordering::SeqCst) && self.phase() != Phase::Failed {
            if !was_full {
                self.wait_for_work();
            }
            writer.urgent.store(false, Ordering::SeqCst);
            let Some(committer) = self.committer.get() else {
                return;
            };
            let mut committer = committer.lock();
            let result = self.commit_once(&mut committer);
            was_full = result.is_ok() && committer.was_full;
            drop(committer);
            self.on_commit_result(&result);
            if matches!(&result, Err(error) if error.is_no_space()) {
                std::thread::park_timeout(DISK_FULL_RETRY);
            }
        }
    }

    fn wait_for_work(&self) {
        let writer = &self.writer;
        let interval = Duration::from_millis(self.config().log_interval_ms);
        let wanted = || writer.urgent.load(Ordering::SeqCst) || writer.stop.load(Ordering::SeqCst);
        // The state is set before the lists are looked at, and who fills a list looks at the state after: so one of
        // the two sees the other.
        writer.state.store(IDLE, Ordering::SeqCst);
        let mut marked = false;
        while !wanted() && self.nothing_to_log() {
            if marked {
                std::thread::park();
                continue;
            }
            std::thread::park_timeout(IDLE_MARK);
            if !wanted() && self.nothing_to_log() {
                self.mark_log();
                marked = true;
            }
        }
        writer.state.store(TIMED, Ordering::SeqCst);
        let started = std::time::Instant::now();
        while !wanted() && started.elapsed() < interval {
            std::thread::park_timeout(interval.saturating_sub(started.elapsed()));
        }
        writer.state.store(RUNNING, Ordering::SeqCst);
    }

    /// Lets a later recovery tell damage to the last batch from one that was never finished.
    fn mark_log(&self) {
        let Some(committer) = self.committer.get() else {
            return;
        };
        let marked = committer.lock().log.mark();
        match marked {
            Err(error) if error.is_no_space() => {}
            result => self.on_commit_result(&result.map(|()| 0)),
        }
    }

    fn nothing_to_log(&self) -> bool {
        let queued = self
            .committer
            .get()
            .is_some_and(|committer| committer.lock().has_work());
        !queued && self.dirty.is_empty()
    }

    fn on_commit_result(&self, result: &Result<usize, LogError>) {
        match result {
            Ok(0) => {}
            Ok(_) => {
                if self.quota.set_disk_full(false) {
                    tracing::info!(bucket = self.name(), "there is room on the disk again");
                }
            }
            Err(error) if error.is_no_space() => {
                if !self.quota.set_disk_full(true) {
                    tracing::error!(bucket = self.name(), %error, "the disk is full: writes get a temporary failure");
                }
            }
            Err(error) => self.fail(&error.to_string()),
        }
    }

    pub(crate) fn fail(&self, why: &str) {
        let before = self.phase.swap(Phase::Failed as u8, Ordering::AcqRel);
        if before != Phase::Failed as u8 {
            tracing::error!(bucket = self.name(), why, "the bucket cannot go on");
            (self.setup.on_fatal)(why);
        }
    }

    /// Commits until nothing is left.
    pub(crate) fn commit_all(&self, committer: &mut Committer) -> Result<(), BucketError> {
        loop {
            let result = self.commit_once(committer);
            self.on_commit_result(&result);
            result?;
            self.queue_lazy(committer);
            if committer.queue.is_empty() && self.dirty.is_empty() {
                return Ok(());
            }
        }
    }

    /// One batch: take, append and sync, publish. Returns how many changes it had.
    pub(crate) fn commit_once(&self, committer: &mut Committer) -> Result<usize, LogError> {
        self.dirty.take_into(&mut committer.queue);
        let start_ns = self.setup.clock.now().mono_ns;
        let interval_ns = self.config().log_interval_ms * 1_000_000;
        if committer
            .lazy
            .first()
            .is_some_and(|first| first.since_ns + interval_ns <= start_ns)
        {
            self.queue_lazy(committer);
        }
        let items = self.collect(committer)?;
        committer.was_full = !committer.queue.is_empty();
        if items == 0 {
            return Ok(0);
        }
        let before = self.setup.clock.now();
        let lsn = committer.log.next_lsn();
        let appended = committer.log.append(&mut committer.batch);
        let now = self.setup.clock.now();
        if let Err(error) = appended {
            // The cursors have not moved: the same changes are taken again.
            let back = committer.taken.drain(..).map(|taken| taken.dirty);
            committer.queue.extend(back);
            return Err(error);
        }
        self.timings.record_us(
            u16::MAX,
            Timing::LogSync,
            (now.mono_ns - before.mono_ns) / 1_000,
        );
        self.timings
            .record_us(u16::MAX, Timing::LogBatchItems, items as u64);
        self.publish(committer, now, lsn);
        *self.log_stats.lock() = committer.log.stats();
        Ok(items)
    }

    /// Queues the vBuckets that have only commits for the log, unless a newer change has queued them already.
    fn queue_lazy(&self, committer: &mut Committer) {
        for dirty in committer.lazy.drain(..) {
            if self.vbuckets[dirty.vb.index()].lock().take_newly_queued() {
                committer.queue.push_back(dirty);
            }
        }
    }

    /// Fills the batch from the queue, up to its limits.
    fn collect(&self, committer: &mut Committer) -> Result<usize, LogError> {
        let config = self.config();
        let Committer {
            batch,
            queue,
            taken,
            changes,
            ..
        } = committer;
        batch.clear();
        let mut items = 0;
        while items < config.flusher_batch_max_items
            && batch.len_bytes() < config.flush_batch_max_bytes as u64
        {
            let Some(dirty) = queue.pop_front() else {
                break;
            };
            let max = config.flusher_batch_max_items - items;
            let max_bytes = config.flush_batch_max_bytes - batch.len_bytes() as usize;
            let to = self.vbuckets[dirty.vb.index()]
                .lock()
                .changes_for_log(max, max_bytes, changes);
            let mut reset = false;
            items += changes.len();
            for change in changes.drain(..) {
                reset |= matches!(change, Change::Reset(_));
                record::push(batch, dirty.vb, &change)?;
            }
            taken.push(Taken { dirty, to, reset });
        }
        Ok(items)
    }

    /// The batch is durable: cursors move, waiters hear of it, and the log gives back what resets made needless.
    fn publish(&self, committer: &mut Committer, now: Now, lsn: Lsn) {
        let Committer {
            queue,
            lazy,
            taken,
            done,
            resets,
            log,
            ..
        } = committer;
        let mut any_reset = false;
        for Taken { dirty, to, reset } in taken.drain(..) {
            let age_us = now.mono_ns.saturating_sub(dirty.since_ns) / 1_000;
            self.timings.record_us(u16::MAX, Timing::StorageAge, age_us);
            if reset {
                resets[dirty.vb.index()] = lsn;
                any_reset = true;
            }
            let mut vbucket = self.vbuckets[dirty.vb.index()].lock();
            let (after, mut ended) = self.measure(&mut vbucket, |vbucket| vbucket.on_logged(to));
            done.append(&mut ended);
            let left = Dirty {
                vb: dirty.vb,
                since_ns: now.mono_ns,
            };
            match after {
                AfterLog::More => queue.push_back(left),
                AfterLog::CommitsOnly => lazy.push(left),
                AfterLog::Nothing => {}
            }
        }
        if any_reset && let Some(floor) = resets.iter().min() {
            log.release_before(*floor);
        }
        if !done.is_empty() {
            self.deliver(now, done);
        }
    }
}
