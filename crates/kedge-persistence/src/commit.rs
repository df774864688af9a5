//! Group commit: one append and one sync make durable what all vBuckets have waiting.
//!
//! Invariants:
//! * One thread commits at a time: who holds the lock of [`Committer`].
//! * A vBucket with changes for the log is in the dirty list or in the committer's queue, once.
//! * Seqnos are published as persisted, and parked commands completed, only after the sync returned.
//! * What could not be written stays where it was: cursors move only after the sync.
//!
//! When it is time for a commit is decided in `writer`; what becomes of the log's records later in `applier`.

use crate::persistence::Persistence;
use crate::record;
use kedge_bucket_core::BucketError;
use kedge_bucket_core::Timing;
use kedge_log::{Batch, Log, LogError, Lsn};
use kedge_sync::{RankedMutex, ranks::DirtyListRank};
use kedge_types::{Now, Seqno, VbId};
use kedge_vbucket::{AfterLog, Change, Done, Position};
use std::collections::VecDeque;

/// A vBucket that has changes for the log, and since when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dirty {
    pub(crate) vb: VbId,
    pub(crate) since_ns: u64,
}

/// vBuckets that have changes for the log and are not in the committer's queue yet.
#[derive(Debug, Default)]
pub(crate) struct DirtyList {
    list: RankedMutex<DirtyListRank, Vec<Dirty>>,
}

impl DirtyList {
    pub(crate) fn push(&self, dirty: Dirty) {
        self.list.lock().push(dirty);
    }

    fn take_into(&self, queue: &mut VecDeque<Dirty>) {
        queue.extend(self.list.lock().drain(..));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.lock().is_empty()
    }
}

/// Where changes stand in the log, and whether a reset is among them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InLog {
    pub(crate) lsn: Lsn,
    pub(crate) reset: bool,
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
    acks: Vec<(VbId, Seqno)>,
    was_full: bool,
}

#[derive(Debug)]
struct Taken {
    dirty: Dirty,
    to: Position,
    reset: bool,
}

impl Committer {
    pub(crate) fn new(log: Log) -> Self {
        Self {
            log,
            batch: Batch::new(),
            queue: VecDeque::new(),
            lazy: Vec::new(),
            taken: Vec::new(),
            changes: Vec::new(),
            done: Vec::new(),
            acks: Vec::new(),
            was_full: false,
        }
    }

    /// Whether something is left to write, now or later.
    pub(crate) fn has_work(&self) -> bool {
        !self.queue.is_empty() || !self.lazy.is_empty()
    }

    /// Whether the last batch met its limits: more was waiting than it could take.
    pub(crate) fn was_full(&self) -> bool {
        self.was_full
    }

    /// The log ended with a clean shutdown: lets something that says nothing follow, so that nobody takes a later crash for
    /// one. What is given out from now on may be lost.
    pub(crate) fn reopen(&mut self) -> Result<(), LogError> {
        self.batch.clear();
        record::push(&mut self.batch, VbId(0), &Change::Advance(Seqno(0)))?;
        self.log.append(&mut self.batch)?;
        Ok(())
    }

    /// Ends the log: the last record says that the shutdown was clean.
    pub(crate) fn close(&mut self) -> Result<(), LogError> {
        self.batch.clear();
        self.batch.push(record::KIND_CLEAN, VbId(0), &[])?;
        self.log.append(&mut self.batch)?;
        self.log.mark()
    }
}

impl Persistence {
    /// A batch was written, or was not. To be called before another thread can write the next: else what is found out here first
    /// would count last, and writes would be withheld although nothing is left that could be tried again.
    pub(crate) fn on_commit_result(&self, result: &Result<usize, BucketError>) {
        match result {
            Ok(0) => {}
            Ok(_) => self.on_written(),
            Err(error) if error.is_no_space() => {
                if !self.core.quota.set_disk_full(true) {
                    tracing::error!(bucket = self.core.name(), %error, "the disk is full: writes get a temporary failure");
                    self.on_disk_full();
                }
                self.report_writes_refused();
            }
            Err(error @ BucketError::Log(_)) if error.is_passing() => {
                if !self.core.quota.set_disk_refuses(true) {
                    tracing::error!(
                        bucket = self.core.name(),
                        %error,
                        "the log cannot be written to now: writes get a temporary failure until that works"
                    );
                }
                self.report_writes_refused();
            }
            Err(error) if error.is_passing() => {
                tracing::error!(bucket = self.core.name(), %error, "changes cannot be made durable now");
            }
            Err(error) => self.core.fail(&error.to_string()),
        }
    }

    /// The disk takes what is written; or nothing is left of what it did not take, and the next write finds out how it is: states of
    /// vBuckets are written without counting as changes, and what was to be written may be gone.
    pub(crate) fn on_written(&self) {
        if self.core.quota.set_disk_full(false) {
            tracing::info!(bucket = self.core.name(), "there is room on the disk again");
            self.on_disk_room();
        }
        if self.core.quota.set_disk_refuses(false) {
            tracing::info!(bucket = self.core.name(), "the log can be written to again");
        }
    }

    /// Commits until nothing is left.
    pub(crate) fn commit_all(&self, committer: &mut Committer) -> Result<(), BucketError> {
        loop {
            let result = self.commit_once(committer);
            self.on_commit_result(&result);
            result?;
            self.queue_lazy(committer);
            if committer.queue.is_empty() && self.queues.dirty.is_empty() {
                return Ok(());
            }
        }
    }

    /// One batch: take, append and sync, publish. Returns how many changes it had.
    pub(crate) fn commit_once(&self, committer: &mut Committer) -> Result<usize, BucketError> {
        self.queues.dirty.take_into(&mut committer.queue);
        let start_ns = self.core.setup.clock.now().mono_ns;
        let interval_ns = self.core.config().log_interval_ms * 1_000_000;
        if committer
            .lazy
            .first()
            .is_some_and(|first| first.since_ns + interval_ns <= start_ns)
        {
            self.queue_lazy(committer);
        }
        let items = self.collect(committer)?;
        if items == 0 {
            return Ok(0);
        }
        let before = self.core.setup.clock.now();
        let lsn = committer.log.next_lsn();
        let appended = committer.log.append(&mut committer.batch);
        let now = self.core.setup.clock.now();
        if let Err(error) = appended {
            // The cursors have not moved: the same changes are taken again.
            let back = committer.taken.drain(..).map(|taken| taken.dirty);
            committer.queue.extend(back);
            return Err(error.into());
        }
        let took_us = (now.mono_ns - before.mono_ns) / 1_000;
        self.core
            .timings
            .record_us(u16::MAX, Timing::LogSync, took_us);
        self.compactions.on_commit(took_us);
        self.core
            .timings
            .record_us(u16::MAX, Timing::LogBatchItems, items as u64);
        self.publish(committer, now, lsn);
        self.on_log_grown(committer);
        Ok(items)
    }

    /// Queues the vBuckets that have only commits for the log, unless a newer change has queued them already.
    fn queue_lazy(&self, committer: &mut Committer) {
        for dirty in committer.lazy.drain(..) {
            if self.core.vbuckets[dirty.vb.index()]
                .lock()
                .changes_mut()
                .take_newly_queued()
            {
                committer.queue.push_back(dirty);
            }
        }
    }

    /// Fills the batch from the queue, up to its limits.
    fn collect(&self, committer: &mut Committer) -> Result<usize, LogError> {
        let config = self.core.config();
        let Committer {
            batch,
            queue,
            taken,
            changes,
            was_full,
            ..
        } = committer;
        batch.clear();
        let mut left = false;
        let mut items = 0;
        while items < config.flusher_batch_max_items
            && batch.len_bytes() < config.flush_batch_max_bytes as u64
        {
            let Some(dirty) = queue.pop_front() else {
                break;
            };
            let max = config.flusher_batch_max_items - items;
            let max_bytes = config.flush_batch_max_bytes - batch.len_bytes() as usize;
            let to = {
                let vbucket = self.core.vbuckets[dirty.vb.index()].lock();
                let to = vbucket.changes().for_log(max, max_bytes, changes);
                left |= vbucket.changes().queued() > changes.len();
                to
            };
            let mut reset = false;
            items += changes.len();
            for change in changes.drain(..) {
                reset |= change.begins_history();
                record::push(batch, dirty.vb, &change)?;
            }
            taken.push(Taken { dirty, to, reset });
        }
        *was_full = left || !queue.is_empty();
        Ok(items)
    }

    /// The batch is durable: cursors move, waiters hear of it, and the log gives back what resets made needless.
    fn publish(&self, committer: &mut Committer, now: Now, lsn: Lsn) {
        let Committer {
            queue,
            lazy,
            taken,
            done,
            acks,
            ..
        } = committer;
        let mut any_reset = false;
        for Taken { dirty, to, reset } in taken.drain(..) {
            any_reset |= reset;
            let in_log = InLog { lsn, reset };
            self.note_storage_age(now, dirty.since_ns);
            let after = self.publish_one(now, dirty.vb, to, Some(in_log), done, acks);
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
        self.report_persisted(acks);
        self.core.after_step();
        if any_reset {
            self.release_log_with(committer);
        }
        if !committer.done.is_empty() {
            self.core.deliver(now, &mut committer.done);
        }
    }

    /// A vBucket's changes since `since_ns` are durable.
    pub(crate) fn note_storage_age(&self, now: Now, since_ns: u64) {
        let age_us = now.mono_ns.saturating_sub(since_ns) / 1_000;
        self.core
            .timings
            .record_us(u16::MAX, Timing::StorageAge, age_us);
    }

    /// What a vBucket has in front of `to` is durable: cursors move, who waits for it ends in `done`, and what is to be
    /// acknowledged to the active that it follows comes in `acks`.
    pub(crate) fn publish_one(
        &self,
        now: Now,
        vb: VbId,
        to: Position,
        in_log: Option<InLog>,
        done: &mut Vec<Done>,
        acks: &mut Vec<(VbId, Seqno)>,
    ) -> AfterLog {
        let mut vbucket = self.core.vbuckets[vb.index()].lock();
        let (after, mut ended) = self
            .core
            .measure(&mut vbucket, |vbucket| vbucket.on_logged(to));
        done.append(&mut ended);
        acks.extend(vbucket.take_ack().map(|seqno| (vb, seqno)));
        if let Some(in_log) = in_log {
            self.note_unapplied(&vbucket, in_log, now.mono_ns);
        }
        after
    }
}
