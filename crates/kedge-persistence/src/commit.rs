//! Group commit: one append and one sync make the queued changes of all vBuckets durable.
//!
//! Invariants:
//! * One thread commits at a time: the holder of the lock of [`Committer`].
//! * A vBucket with changes for the log is in the dirty list or in the committer's queue, exactly once.
//! * Seqnos are published as persisted, and parked commands completed, only after the sync has returned.
//! * Changes that could not be written keep their position: cursors move only after the sync.
//!
//! The module `writers` decides when a commit is due. The module `applier` writes the log's records into the files.

use crate::dirty::DirtyVb;
use crate::record;
use crate::shared::SharedState;
use crate::truncation::LoggedRecords;
use kedge_bucket_core::{BucketCore, BucketError, Component, Timing};
use kedge_log::{Batch, Log, LogError, LogStats, Lsn};
use kedge_sync::{
    RankedMutex,
    ranks::{BucketLogStats, CommitterRank},
};
use kedge_types::{Now, Seqno, VbId};
use kedge_vbucket::{AfterLog, Change, CompletedCommand, Position};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

/// The log, and the batch that is being written to it.
#[derive(Debug)]
pub(crate) struct Committer {
    pub(crate) log: Log,
    batch: Batch,
    queue: VecDeque<DirtyVb>,
    /// vBuckets that have only commits of prepares to log, see [`AfterLog::CommitsOnly`].
    commits_only: Vec<DirtyVb>,
    batched: Vec<BatchedVb>,
    changes: Vec<Change>,
    done: Vec<CompletedCommand>,
    acks: Vec<(VbId, Seqno)>,
    was_full: bool,
}

#[derive(Debug)]
struct BatchedVb {
    dirty: DirtyVb,
    to: Position,
    is_reset: bool,
}

impl Committer {
    pub(crate) fn new(log: Log) -> Self {
        Self {
            log,
            batch: Batch::new(),
            queue: VecDeque::new(),
            commits_only: Vec::new(),
            batched: Vec::new(),
            changes: Vec::new(),
            done: Vec::new(),
            acks: Vec::new(),
            was_full: false,
        }
    }

    /// Returns whether the committer has queued vBuckets, including those that may wait for the interval.
    pub(crate) fn has_work(&self) -> bool {
        !self.queue.is_empty() || !self.commits_only.is_empty()
    }

    /// Returns whether the last batch reached its limits, so that queued changes are left.
    pub(crate) fn was_full(&self) -> bool {
        self.was_full
    }

    /// Returns the memory that batches needed. Each one is empty before it is filled.
    fn return_memory(&mut self) {
        self.batch = Batch::new();
        self.batched = Vec::new();
        self.changes = Vec::new();
    }

    /// Appends a record without effect after the record of a clean shutdown, so that a later crash is not taken for a
    /// clean shutdown. Changes that clients see from now on may be lost in a crash.
    pub(crate) fn reopen(&mut self) -> Result<(), LogError> {
        self.batch.clear();
        record::push(&mut self.batch, VbId(0), &Change::Advance(Seqno(0)))?;
        self.log.append(&mut self.batch)?;
        Ok(())
    }

    /// Appends the record of a clean shutdown and ends the log.
    pub(crate) fn close(&mut self) -> Result<(), LogError> {
        self.batch.clear();
        self.batch.push(record::KIND_CLEAN, VbId(0), &[])?;
        self.log.append(&mut self.batch)?;
        self.log.write_marker()
    }
}

/// The commit log of a bucket.
pub(crate) struct CommitLog {
    pub(crate) core: Arc<BucketCore>,
    pub(crate) shared: Arc<SharedState>,
    /// Set by recovery.
    pub(crate) committer: OnceLock<RankedMutex<CommitterRank, Committer>>,
    pub(crate) stats: RankedMutex<BucketLogStats, LogStats>,
}

impl Component for CommitLog {
    fn core(&self) -> &BucketCore {
        &self.core
    }
}

impl CommitLog {
    pub(crate) fn new(shared: &Arc<SharedState>) -> Self {
        Self {
            core: Arc::clone(&shared.core),
            shared: Arc::clone(shared),
            committer: OnceLock::new(),
            stats: RankedMutex::default(),
        }
    }

    /// Sets the committer of the log that recovery has read.
    pub(crate) fn set_committer(&self, committer: Committer) {
        self.on_log_appended(&committer);
        // A bucket is loaded once.
        let _ = self
            .shared
            .log_space
            .preallocator
            .set(committer.log.preallocator());
        let _ = self.committer.set(RankedMutex::new(committer));
    }

    /// Returns the committer.
    ///
    /// # Errors
    /// [`BucketError::NotLoaded`] before recovery.
    pub(crate) fn committer(&self) -> Result<&RankedMutex<CommitterRank, Committer>, BucketError> {
        let committer = self.committer.get();
        committer.ok_or_else(|| BucketError::NotLoaded(self.core.name().to_owned()))
    }

    /// Commits batches until no vBucket is queued.
    pub(crate) fn commit_all(&self, committer: &mut Committer) -> Result<(), BucketError> {
        loop {
            let result = self.commit_batch(committer);
            self.shared.on_commit_result(&result);
            result?;
            self.queue_commits_only(committer);
            if committer.queue.is_empty() && self.shared.queues.dirty.is_empty() {
                return Ok(());
            }
        }
    }

    /// Commits one batch: collects changes, appends and syncs them, and publishes the new seqnos. Returns the number of
    /// changes.
    pub(crate) fn commit_batch(&self, committer: &mut Committer) -> Result<usize, BucketError> {
        self.shared.queues.dirty.take_into(&mut committer.queue);
        let start_ns = self.core.setup.clock.now().mono_ns;
        let interval_ns = self.core.config().log_interval_ms * 1_000_000;
        if committer
            .commits_only
            .first()
            .is_some_and(|first| first.since_ns + interval_ns <= start_ns)
        {
            self.queue_commits_only(committer);
        }
        let items = self.fill_batch(committer)?;
        if items == 0 {
            return Ok(0);
        }
        let before = self.core.setup.clock.now();
        let lsn = committer.log.next_lsn();
        let appended = committer.log.append(&mut committer.batch);
        let now = self.core.setup.clock.now();
        if let Err(error) = appended {
            // The cursors have not moved, so the next batch collects the same changes.
            let back = committer.batched.drain(..).map(|batched| batched.dirty);
            committer.queue.extend(back);
            return Err(error.into());
        }
        let took_us = (now.mono_ns - before.mono_ns) / 1_000;
        self.core
            .timings
            .record_us(u16::MAX, Timing::LogSync, took_us);
        self.shared.compaction_throttle.on_commit(took_us);
        self.core
            .timings
            .record_us(u16::MAX, Timing::LogBatchItems, items as u64);
        self.publish(committer, now, lsn);
        self.on_log_appended(committer);
        Ok(items)
    }

    /// Queues the vBuckets that have only commits to log, unless a newer change has queued them already.
    fn queue_commits_only(&self, committer: &mut Committer) {
        for dirty in committer.commits_only.drain(..) {
            if self.core.vbuckets[dirty.vb.index()]
                .lock()
                .changes_mut()
                .take_newly_queued()
            {
                committer.queue.push_back(dirty);
            }
        }
    }

    /// Fills the batch from the queue, up to its limits. Returns the number of changes.
    fn fill_batch(&self, committer: &mut Committer) -> Result<usize, LogError> {
        let config = self.core.config();
        let Committer {
            batch,
            queue,
            batched,
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
            let mut is_reset = false;
            items += changes.len();
            for change in changes.drain(..) {
                is_reset |= change.begins_history();
                record::push(batch, dirty.vb, &change)?;
            }
            batched.push(BatchedVb {
                dirty,
                to,
                is_reset,
            });
        }
        *was_full = left || !queue.is_empty();
        Ok(items)
    }

    /// Publishes a durable batch: moves cursors, completes waiting commands, and truncates the log if a reset has made
    /// records obsolete.
    fn publish(&self, committer: &mut Committer, now: Now, lsn: Lsn) {
        let Committer {
            queue,
            commits_only,
            batched,
            done,
            acks,
            ..
        } = committer;
        let mut any_reset = false;
        for BatchedVb {
            dirty,
            to,
            is_reset,
        } in batched.drain(..)
        {
            any_reset |= is_reset;
            let logged = LoggedRecords { lsn, is_reset };
            self.shared.record_storage_age(now, dirty.since_ns);
            let after = self
                .shared
                .publish(now, dirty.vb, to, Some(logged), done, acks);
            let left = DirtyVb {
                vb: dirty.vb,
                since_ns: now.mono_ns,
            };
            match after {
                AfterLog::More => queue.push_back(left),
                AfterLog::CommitsOnly => commits_only.push(left),
                AfterLog::Nothing => {}
            }
        }
        self.shared.events.persisted(acks);
        self.core.after_step();
        if any_reset {
            self.truncate_with(committer);
        }
        if !committer.done.is_empty() {
            self.core.deliver(now, &mut committer.done);
        }
    }

    /// Updates everything that depends on the length of the log after an append.
    pub(crate) fn on_log_appended(&self, committer: &Committer) {
        self.shared.truncation.update_log_bounds(&committer.log);
        *self.stats.lock() = committer.log.stats();
        self.shared.log_space.on_log_changed();
        self.shared.apply_queues.update_apply_pressure();
    }

    /// Removes the segments that no vBucket needs, if the oldest one can be removed.
    pub(crate) fn truncate(&self) {
        if !self.shared.truncation.can_truncate() {
            return;
        }
        if let Some(committer) = self.committer.get() {
            self.truncate_with(&mut committer.lock());
        }
    }

    /// The same as [`CommitLog::truncate`], for a caller that holds the committer.
    pub(crate) fn truncate_with(&self, committer: &mut Committer) {
        let truncation = self.shared.truncation.point().min(committer.log.next_lsn());
        if committer.log.release_before(truncation) > 0 {
            self.shared.truncation.update_log_bounds(&committer.log);
            *self.stats.lock() = committer.log.stats();
            self.shared.log_space.on_log_changed();
        }
    }

    /// Writes an end marker behind the last batch. It lets recovery tell damage to that batch from an append that was
    /// interrupted. It comes after a time without a commit, so the memory of batches is returned.
    pub(crate) fn write_end_marker(&self) {
        let Some(committer) = self.committer.get() else {
            return;
        };
        let marked = {
            let mut committer = committer.lock();
            committer.return_memory();
            committer.log.write_marker()
        };
        match marked {
            // The next batch meets the same error and reports it.
            Err(error) if error.is_passing() => {}
            result => self
                .shared
                .on_commit_result(&result.map(|()| 0).map_err(BucketError::from)),
        }
    }
}
