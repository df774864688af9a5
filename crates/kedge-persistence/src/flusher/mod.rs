//! Without a commit log: changes go into their vBucket's file at once, a commit of two syncs for each vBucket. Where many
//! changes of a vBucket wait, and nobody for them, several commits share the syncs.
//!
//! The vBuckets are cut into parts, each with a flusher. vBuckets that someone waits for come first; the others' turn is
//! when the interval is over, and while someone waits all the time, every second time.
//!
//! Invariants:
//! * One thread flushes a vBucket at a time: who holds the lock of its [`Flusher`]. No vBucket is locked over a commit.
//! * A vBucket with changes is marked, and stands in each list or queue of its flusher once at most.
//! * What is published as persisted is in a commit that returned. What could not be written stays where it was.

mod drain;
pub(crate) mod lists;

use crate::shared::SharedState;
use crate::shutdown_marker::ShutdownMarker;
use kedge_bucket_core::BucketConfig;
use kedge_bucket_core::Timing;
use kedge_bucket_core::Total;
use kedge_bucket_core::{BucketCore, BucketError, Phase};
use kedge_executor::Pool;
use kedge_types::{Now, VbId};
use kedge_vbucket::{AfterLog, ApplyBatch, Position};
use lists::{Flusher, Flushers};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Most that one commit has.
#[derive(Clone, Copy)]
struct BatchLimit {
    items: usize,
    bytes: usize,
}

/// What was written and is durable.
struct FlushedBatches {
    items: usize,
    commits: u64,
    to: Position,
}

/// What came of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommitOutcome {
    /// Changes.
    pub(crate) items: usize,
    /// Others are to be written at once.
    pub(crate) more: bool,
}

/// Writes changes into the files at once, for buckets without a log.
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

    /// See [`crate::Writers::request_flush`].
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

    /// Flushes those that someone waits for by now.
    fn lead_flush(&self, flushers: &Flushers, flusher: &mut Flusher) {
        for _ in 0..flusher.urgent.len() {
            let result = self.flush_urgent(flushers, flusher);
            self.shared.on_commit_result(&result);
        }
    }

    /// Flushes one vBucket whose time has come.
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
            // It was put aside: the others can be written.
            Err(error) if error.is_passing() && !error.is_no_space() => {
                Ok(CommitOutcome { items: 0, more })
            }
            other => other.map(|items| CommitOutcome { items, more }),
        }
    }

    /// When the interval is over, all that wait for it by now are to be flushed.
    fn queue_due(&self, flushers: &Flushers, flusher: &mut Flusher) {
        let now_ns = self.core.setup.clock.now().mono_ns;
        let is_closing = flushers.is_closing.load(Ordering::SeqCst);
        let is_due_at_once = is_closing || self.core.quota.is_room_wanted();
        while let Some((due_ns, vb, is_retry)) = flusher.deferred.front().copied() {
            // What could not be written is not is_retry without a pause.
            if due_ns > now_ns && (is_retry || !is_closing) {
                break;
            }
            flusher.deferred.pop_front();
            let state = &flushers.states[vb.index()];
            state.is_deferred.store(false, Ordering::SeqCst);
            // Unless it has been queued since.
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

    /// How long what waits for a flusher may still wait; None when nothing does.
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
        // Before the changes are taken: who comes after that is not forgotten.
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

    /// Commits of a vBucket's file that share their syncs: take, write, publish. Returns how many changes they had.
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
        // Before the changes are taken: those that come after that count.
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
        let is_enough = || !flusher.is_draining && self.has_flush_waiter(flushers, flusher, vb);
        let written = self.write_batches(vb, batch, to, limit, before.unix_ns, &is_enough);
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
            // Several take longer, however fast the disk is.
            self.shared.compaction_throttle.on_commit(took_us);
        }
        self.shared
            .record_storage_age(now, state.since_ns.load(Ordering::Relaxed));
        self.publish_flushed(flushers, flusher, now, vb, written.to);
        Ok(written.items)
    }

    /// Most that a commit has.
    fn flush_limit(&self, flushers: &Flushers) -> BatchLimit {
        let config = self.core.config();
        let (items, bytes) = (config.flusher_batch_max_items, config.flush_batch_max_bytes);
        if flushers.is_closing.load(Ordering::SeqCst) {
            return BatchLimit { items, bytes };
        }
        // Who comes to wait is not to wait for long.
        BatchLimit {
            items: items.min(BucketConfig::DIRECT_BATCH_ITEMS_MAX),
            bytes: bytes.min(BucketConfig::DIRECT_BATCH_BYTES_MAX),
        }
    }

    /// Whether someone waits for the flusher that has this vBucket, or for its thread.
    fn has_flush_waiter(&self, flushers: &Flushers, flusher: &Flusher, vb: VbId) -> bool {
        flusher.was_last_urgent
            || !flusher.urgent.is_empty()
            || flushers.has_urgent_request(vb)
            || self.core.setup.executor.lacks_threads(Pool::Writer)
    }

    /// Writes `batch`, which ends at `to`, and what comes behind it, until that is as large as a flush may be, or `is_enough`
    /// says so.
    fn write_batches(
        &self,
        vb: VbId,
        mut batch: ApplyBatch,
        mut to: Position,
        limit: BatchLimit,
        now_ns: u64,
        is_enough: &dyn Fn() -> bool,
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
                // An empty file that was just made says all there is to say.
                return Ok(written);
            }
        }
        let bytes_max = self.core.config().flush_batch_max_bytes as u64;
        storage.commit_together(vb, now_ns, |commits| {
            loop {
                let history = batch.history();
                // One part: it was cut to size when it was taken.
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
                if commits.written_bytes() >= bytes_max || is_enough() {
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

    /// Does what the start could not: syncs the files, and writes the state.
    pub(crate) fn write_due_marker(&self) -> Result<(), BucketError> {
        if self.shared.marker_is_due.load(Ordering::Acquire) {
            if self.core.phase() != Phase::Loading {
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
