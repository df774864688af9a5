//! The flusher of a bucket without a commit log: it writes changes to the vBuckets' files, with a commit of two syncs
//! for each vBucket. If a vBucket has many changes that no command waits for, several commits share the syncs.
//!
//! The vBuckets are divided into shards, each with a flusher. vBuckets that commands wait for are flushed first. The
//! others are flushed when the interval is over. If commands wait all the time, the two kinds alternate.
//!
//! Invariants:
//! * One thread flushes a vBucket at a time: the holder of the lock of its [`Flusher`]. No vBucket is locked during a
//!   commit.
//! * A vBucket with changes is marked as dirty, and is in each list or queue of its flusher at most once.
//! * A seqno is published as persisted after the commit that contains it has returned. Changes that could not be
//!   written keep their position.

mod drain;
pub(crate) mod lists;

use crate::shared::SharedState;
use crate::shutdown_marker::ShutdownMarker;
use kedge_bucket_core::{BucketConfig, BucketCore, BucketError, BucketPhase, Timing, Total};
use kedge_executor::Pool;
use kedge_types::{Now, VbId};
use kedge_vbucket::{AfterLog, ApplyBatch, Position};
use lists::{Flusher, Flushers};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The maximum size of one commit.
#[derive(Clone, Copy)]
struct BatchLimit {
    items: usize,
    bytes: usize,
}

/// The durable result of a flush.
struct FlushedBatches {
    items: usize,
    commits: u64,
    to: Position,
}

/// The result of a batch of a writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommitOutcome {
    /// The number of changes.
    pub(crate) items: usize,
    /// True if more changes are to be written immediately.
    pub(crate) more: bool,
}

/// The flushers of a bucket without a log.
pub(crate) struct FileFlusher {
    core: Arc<BucketCore>,
    shared: Arc<SharedState>,
}

impl FileFlusher {
    pub(crate) fn new(shared: &Arc<SharedState>) -> Self {
        Self {
            core: Arc::clone(&shared.core),
            shared: Arc::clone(shared),
        }
    }

    /// Requests a flush of the vBuckets that commands wait for, see [`crate::Writers::request_flush`].
    pub(crate) fn request(&self, lead: bool) {
        let Some(flushers) = &self.shared.queues.flushers else {
            return;
        };
        for (lane, shard) in flushers.shards.iter().enumerate() {
            if !shard.has_new_waiters.swap(false, Ordering::SeqCst) {
                continue;
            }
            match shard.flusher.try_lock() {
                Some(mut flusher) if lead => {
                    flushers.take_requests(shard, &mut flusher);
                    self.lead_flush(flushers, &mut flusher);
                    let left = !flusher.urgent.is_empty();
                    drop(flusher);
                    if left {
                        self.shared.queues.on_urgent(&self.core, lane);
                    } else if self.time_to_next_flush(lane).is_some() {
                        self.shared.queues.start_interval(&self.core, lane);
                    }
                }
                _ => self.shared.queues.on_urgent(&self.core, lane),
            }
        }
    }

    /// Flushes the vBuckets that commands wait for now.
    fn lead_flush(&self, flushers: &Flushers, flusher: &mut Flusher) {
        for _ in 0..flusher.urgent.len() {
            let result = self.flush_urgent(flushers, flusher);
            self.shared.on_commit_result(&result);
        }
    }

    /// Flushes the next vBucket that is due.
    pub(crate) fn flush_next(&self, lane: usize) -> Result<CommitOutcome, BucketError> {
        let Some(flushers) = &self.shared.queues.flushers else {
            return Ok(CommitOutcome::default());
        };
        let shard = &flushers.shards[lane];
        let mut flusher = shard.flusher.lock();
        shard.has_new_waiters.store(false, Ordering::SeqCst);
        flushers.take_requests(shard, &mut flusher);
        self.queue_due(flushers, &mut flusher);
        let queued_first = flusher.was_last_urgent && flusher.due > 0;
        let result = if !flusher.urgent.is_empty() && !queued_first {
            self.flush_urgent(flushers, &mut flusher)
        } else if flusher.due > 0 {
            self.flush_queued(flushers, &mut flusher)
        } else {
            return Ok(CommitOutcome::default());
        };
        let more = !flusher.urgent.is_empty() || flusher.due > 0;
        self.shared.on_commit_result(&result);
        drop(flusher);
        match result {
            // The vBucket was deferred, and the others can be written.
            Err(error) if error.is_passing() && !error.is_no_space() => {
                Ok(CommitOutcome { items: 0, more })
            }
            other => other.map(|items| CommitOutcome { items, more }),
        }
    }

    /// Queues deferred vBuckets whose time has come. When the interval is over, makes all queued vBuckets due.
    fn queue_due(&self, flushers: &Flushers, flusher: &mut Flusher) {
        let now_ns = self.core.setup.clock.now().mono_ns;
        let is_closing = flushers.is_closing.load(Ordering::SeqCst);
        let is_due_at_once = is_closing || self.core.quota.is_room_wanted();
        while let Some((due_ns, vb, is_retry)) = flusher.deferred.front().copied() {
            // A failed write is not retried without a pause.
            if due_ns > now_ns && (is_retry || !is_closing) {
                break;
            }
            flusher.deferred.pop_front();
            let state = &flushers.states[vb.index()];
            state.is_deferred.store(false, Ordering::SeqCst);
            // A newer change may have queued it already.
            if is_retry
                || self.core.vbuckets[vb.index()]
                    .lock()
                    .changes_mut()
                    .take_newly_queued()
            {
                if !is_retry {
                    state.since_ns.store(0, Ordering::Relaxed);
                }
                state.is_dirty.store(true, Ordering::SeqCst);
                if !state.is_queued.swap(true, Ordering::SeqCst) {
                    flusher.queued.push_front(vb);
                }
            }
        }
        if flusher.due == 0
            && let Some(first) = flusher.queued.front()
        {
            let since_ns = flushers.states[first.index()]
                .since_ns
                .load(Ordering::Relaxed);
            if is_due_at_once || since_ns + self.core.config().log_interval_ms * 1_000_000 <= now_ns
            {
                flusher.due = flusher.queued.len();
            }
        }
    }

    /// Returns the time until the next vBucket of a flusher is due, or `None` if none is queued.
    pub(crate) fn time_to_next_flush(&self, lane: usize) -> Option<Duration> {
        let flushers = self.shared.queues.flushers.as_ref()?;
        let shard = &flushers.shards[lane];
        let mut flusher = shard.flusher.lock();
        flushers.take_requests(shard, &mut flusher);
        if !flusher.urgent.is_empty() || flusher.due > 0 {
            return Some(Duration::ZERO);
        }
        let queued_ns = flusher.queued.front().map(|first| {
            let since = &flushers.states[first.index()].since_ns;
            since.load(Ordering::Relaxed) + self.core.config().log_interval_ms * 1_000_000
        });
        let deferred_ns = flusher.deferred.front().map(|(due_ns, ..)| *due_ns);
        let due_ns = queued_ns.into_iter().chain(deferred_ns).min()?;
        let now_ns = self.core.setup.clock.now().mono_ns;
        Some(Duration::from_nanos(due_ns.saturating_sub(now_ns)))
    }

    fn flush_urgent(
        &self,
        flushers: &Flushers,
        flusher: &mut Flusher,
    ) -> Result<usize, BucketError> {
        let Some(vb) = flusher.urgent.pop_front() else {
            return Ok(0);
        };
        flusher.was_last_urgent = true;
        let state = &flushers.states[vb.index()];
        // Cleared before the changes are taken, so that a command that waits for a later change is not missed.
        state.is_urgent.store(false, Ordering::SeqCst);
        let result = self.flush_vbucket(flushers, flusher, vb);
        if result.as_ref().is_err_and(BucketError::is_no_space)
            && !state.is_urgent.swap(true, Ordering::SeqCst)
        {
            flusher.urgent.push_front(vb);
        }
        result
    }

    fn flush_queued(
        &self,
        flushers: &Flushers,
        flusher: &mut Flusher,
    ) -> Result<usize, BucketError> {
        let Some(vb) = flusher.queued.pop_front() else {
            flusher.due = 0;
            return Ok(0);
        };
        flusher.was_last_urgent = false;
        flusher.due -= 1;
        let state = &flushers.states[vb.index()];
        state.is_queued.store(false, Ordering::SeqCst);
        if !state.is_dirty.load(Ordering::SeqCst) {
            return Ok(0);
        }
        let result = self.flush_vbucket(flushers, flusher, vb);
        if result.as_ref().is_err_and(BucketError::is_no_space)
            && !state.is_queued.swap(true, Ordering::SeqCst)
        {
            flusher.queued.push_front(vb);
        }
        result
    }

    /// Takes changes of a vBucket, writes them with commits that share their syncs, and publishes them. Returns the
    /// number of changes.
    fn flush_vbucket(
        &self,
        flushers: &Flushers,
        flusher: &mut Flusher,
        vb: VbId,
    ) -> Result<usize, BucketError> {
        let limit = self.flush_limit(flushers);
        if !flusher.is_draining && self.core.storage()?.is_being_written(vb) {
            self.core.totals.add(Total::ApplyDeferrals, 1);
            flushers.defer_busy(flusher, vb, self.core.setup.clock.now());
            return Ok(0);
        }
        let state = &flushers.states[vb.index()];
        if let Err(error) = self.write_due_marker() {
            if !error.is_no_space() {
                flushers.defer(flusher, vb, self.core.setup.clock.now(), true);
            }
            return Err(error);
        }
        // Cleared before the changes are taken, so that later changes set it again.
        state.is_dirty.store(false, Ordering::SeqCst);
        let (batch, to) = self.core.vbuckets[vb.index()]
            .lock()
            .store()
            .direct_batch(limit.items, limit.bytes);
        let before = self.core.setup.clock.now();
        let Some(batch) = batch else {
            self.publish_flushed(flushers, flusher, before, vb, to);
            return Ok(0);
        };
        let should_stop = || !flusher.is_draining && self.has_flush_waiter(flushers, flusher, vb);
        let written = self.write_batches(vb, batch, to, limit, before.unix_ns, &should_stop);
        let now = self.core.setup.clock.now();
        let written = match written {
            Ok(written) => written,
            Err(error) => {
                state.is_dirty.store(true, Ordering::SeqCst);
                self.core.totals.add(Total::FlushFailures, 1);
                self.shared.stuck.note(vb, &error);
                if !error.is_no_space() {
                    flushers.defer(flusher, vb, now, true);
                }
                return Err(error);
            }
        };
        let took_us = now.mono_ns.saturating_sub(before.mono_ns) / 1_000;
        self.core
            .timings
            .record_us(u16::MAX, Timing::ApplyCommit, took_us);
        self.core.totals.add(Total::FlushCommits, written.commits);
        self.shared.stuck.remove(vb);
        self.shared.changed_files.on_changed(vb);
        if written.commits == 1 {
            // The duration of several commits says nothing about the speed of the disk.
            self.shared.compaction_throttle.on_commit(took_us);
        }
        self.shared
            .record_storage_age(now, state.since_ns.load(Ordering::Relaxed));
        self.publish_flushed(flushers, flusher, now, vb, written.to);
        Ok(written.items)
    }

    /// Returns the maximum size of a commit.
    fn flush_limit(&self, flushers: &Flushers) -> BatchLimit {
        let config = self.core.config();
        let (items, bytes) = (config.flusher_batch_max_items, config.flush_batch_max_bytes);
        if flushers.is_closing.load(Ordering::SeqCst) {
            return BatchLimit { items, bytes };
        }
        // A command that begins to wait during a commit must not wait for long.
        BatchLimit {
            items: items.min(BucketConfig::DIRECT_BATCH_ITEMS_MAX),
            bytes: bytes.min(BucketConfig::DIRECT_BATCH_BYTES_MAX),
        }
    }

    /// Returns whether a command waits for the flusher of the vBucket, or a task for its thread.
    fn has_flush_waiter(&self, flushers: &Flushers, flusher: &Flusher, vb: VbId) -> bool {
        flusher.was_last_urgent
            || !flusher.urgent.is_empty()
            || flushers.has_urgent_request(vb)
            || self.core.setup.executor.lacks_threads(Pool::Writer)
    }

    /// Writes `batch`, which ends at `to`, and the changes behind it, until the size limit of a flush is reached or
    /// `should_stop` returns true.
    fn write_batches(
        &self,
        vb: VbId,
        mut batch: ApplyBatch,
        mut to: Position,
        limit: BatchLimit,
        now_ns: u64,
        should_stop: &dyn Fn() -> bool,
    ) -> Result<FlushedBatches, BucketError> {
        let storage = self.core.storage()?;
        let mut written = FlushedBatches {
            items: 0,
            commits: 1,
            to,
        };
        if batch.removes_file() {
            storage.delete(vb)?;
            return Ok(written);
        }
        if batch.replaces_file() {
            storage.replace(vb, &batch.empty_state(), now_ns)?;
            if batch.items().is_empty() {
                // The new empty file represents the state completely.
                return Ok(written);
            }
        }
        let bytes_max = self.core.config().flush_batch_max_bytes as u64;
        storage.commit_together(vb, now_ns, |commits| {
            loop {
                let history = batch.history();
                // The batch was limited when it was taken, so it has one part.
                for part in batch.parts(usize::MAX, usize::MAX) {
                    let committed = commits.write(part.items, &part.state, &mut || {})?;
                    self.shared
                        .note_overwritten(vb, history, part.items, &committed);
                    written.items += part.items.len();
                    let items = part.items.len() as u64;
                    self.core
                        .timings
                        .record_us(u16::MAX, Timing::ApplyBatchItems, items);
                }
                written.to = to;
                if commits.written_bytes() >= bytes_max || should_stop() {
                    return Ok(());
                }
                let vbucket = self.core.vbuckets[vb.index()].lock();
                let next =
                    vbucket
                        .store()
                        .direct_batch_behind(&batch, to, limit.items, limit.bytes);
                drop(vbucket);
                match next {
                    Some(next) => (batch, to) = next,
                    None => return Ok(()),
                }
                written.commits += 1;
            }
        })?;
        Ok(written)
    }

    fn publish_flushed(
        &self,
        flushers: &Flushers,
        flusher: &mut Flusher,
        now: Now,
        vb: VbId,
        to: Position,
    ) {
        let state = &flushers.states[vb.index()];
        let (done, acks) = (&mut flusher.done, &mut flusher.acks);
        match self.shared.publish(now, vb, to, None, done, acks) {
            AfterLog::More => {
                state.since_ns.store(now.mono_ns, Ordering::Relaxed);
                state.is_dirty.store(true, Ordering::SeqCst);
                if self.core.vbuckets[vb.index()]
                    .lock()
                    .durability()
                    .has_waiters()
                {
                    if !state.is_urgent.swap(true, Ordering::SeqCst) {
                        flusher.urgent.push_back(vb);
                    }
                } else if !state.is_queued.swap(true, Ordering::SeqCst) {
                    flusher.queued.push_back(vb);
                }
            }
            AfterLog::CommitsOnly => flushers.defer(flusher, vb, now, false),
            AfterLog::Nothing => {}
        }
        self.shared.events.memory_freed();
        self.shared.events.file_advanced(vb);
        self.shared.events.persisted(&mut flusher.acks);
        self.core.after_step();
        if !flusher.done.is_empty() {
            self.core.deliver(now, &mut flusher.done);
        }
    }

    /// Completes a start that had no disk space: syncs the files, and writes the marker of an open bucket.
    pub(crate) fn write_due_marker(&self) -> Result<(), BucketError> {
        if self.shared.marker_is_due.load(Ordering::Acquire) {
            if self.core.phase() != BucketPhase::Loading {
                for vb in (0..self.core.vbucket_count()).map(VbId) {
                    if !self.shared.is_quarantined(vb) {
                        self.core.storage()?.make_durable(vb)?;
                    }
                }
            }
            ShutdownMarker::Open.write(&*self.core.setup.disk, &self.core.setup.dir)?;
            self.shared.marker_is_due.store(false, Ordering::Release);
        }
        Ok(())
    }
}
