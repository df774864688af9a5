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

use crate::shared::Shared;
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
struct Limit {
    items: usize,
    bytes: usize,
}

/// What was written and is durable.
struct Written {
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
    shared: Arc<Shared>,
}

impl FileFlusher {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
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
            if !shard.is_waited.swap(false, Ordering::SeqCst) {
                continue;
            }
            match shard.flusher.try_lock() {
                Some(mut flusher) if lead => {
                    flushers.fetch(shard, &mut flusher);
                    self.lead(flushers, &mut flusher);
                    let left = !flusher.waited.is_empty();
                    drop(flusher);
                    if left {
                        self.shared.queues.on_urgent(&self.core, lane);
                    } else if self.next_flush(lane).is_some() {
                        self.shared.queues.begin_interval(&self.core, lane);
                    }
                }
                _ => self.shared.queues.on_urgent(&self.core, lane),
            }
        }
    }

    /// Flushes those that someone waits for by now.
    fn lead(&self, flushers: &Flushers, flusher: &mut Flusher) {
        for _ in 0..flusher.waited.len() {
            let result = self.flush_waited(flushers, flusher);
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
        shard.is_waited.store(false, Ordering::SeqCst);
        flushers.fetch(shard, &mut flusher);
        self.begin_round(flushers, &mut flusher);
        let plain_first = flusher.was_waited && flusher.round > 0;
        let result = if !flusher.waited.is_empty() && !plain_first {
            self.flush_waited(flushers, &mut flusher)
        } else if flusher.round > 0 {
            self.flush_plain(flushers, &mut flusher)
        } else {
            return Ok(CommitOutcome::default());
        };
        let more = !flusher.waited.is_empty() || flusher.round > 0;
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
    fn begin_round(&self, flushers: &Flushers, flusher: &mut Flusher) {
        let now_ns = self.core.setup.clock.now().mono_ns;
        let hurry = flushers.hurry.load(Ordering::SeqCst);
        let now_please = hurry || self.core.quota.is_room_wanted();
        while let Some((due_ns, vb, tried)) = flusher.later.front().copied() {
            // What could not be written is not tried without a pause.
            if due_ns > now_ns && (tried || !hurry) {
                break;
            }
            flusher.later.pop_front();
            let mark = &flushers.states[vb.index()];
            mark.later.store(false, Ordering::SeqCst);
            // Unless it has been queued since.
            if tried
                || self.core.vbuckets[vb.index()]
                    .lock()
                    .changes_mut()
                    .take_newly_queued()
            {
                if !tried {
                    mark.since_ns.store(0, Ordering::Relaxed);
                }
                mark.dirty.store(true, Ordering::SeqCst);
                if !mark.plain.swap(true, Ordering::SeqCst) {
                    flusher.plain.push_front(vb);
                }
            }
        }
        if flusher.round == 0
            && let Some(first) = flusher.plain.front()
        {
            let since_ns = flushers.states[first.index()]
                .since_ns
                .load(Ordering::Relaxed);
            if now_please || since_ns + self.core.config().log_interval_ms * 1_000_000 <= now_ns {
                flusher.round = flusher.plain.len();
            }
        }
    }

    /// How long what waits for a flusher may still wait; None when nothing does.
    pub(crate) fn next_flush(&self, lane: usize) -> Option<Duration> {
        let flushers = self.shared.queues.flushers.as_ref()?;
        let shard = &flushers.shards[lane];
        let mut flusher = shard.flusher.lock();
        flushers.fetch(shard, &mut flusher);
        if !flusher.waited.is_empty() || flusher.round > 0 {
            return Some(Duration::ZERO);
        }
        let plain_ns = flusher.plain.front().map(|first| {
            let since = &flushers.states[first.index()].since_ns;
            since.load(Ordering::Relaxed) + self.core.config().log_interval_ms * 1_000_000
        });
        let later_ns = flusher.later.front().map(|(due_ns, ..)| *due_ns);
        let due_ns = plain_ns.into_iter().chain(later_ns).min()?;
        let now_ns = self.core.setup.clock.now().mono_ns;
        Some(Duration::from_nanos(due_ns.saturating_sub(now_ns)))
    }

    fn flush_waited(
        &self,
        flushers: &Flushers,
        flusher: &mut Flusher,
    ) -> Result<usize, BucketError> {
        let Some(vb) = flusher.waited.pop_front() else {
            return Ok(0);
        };
        flusher.was_waited = true;
        let mark = &flushers.states[vb.index()];
        // Before the changes are taken: who comes after that is not forgotten.
        mark.waited.store(false, Ordering::SeqCst);
        let result = self.flush_vbucket(flushers, flusher, vb);
        if result.as_ref().is_err_and(BucketError::is_no_space)
            && !mark.waited.swap(true, Ordering::SeqCst)
        {
            flusher.waited.push_front(vb);
        }
        result
    }

    fn flush_plain(
        &self,
        flushers: &Flushers,
        flusher: &mut Flusher,
    ) -> Result<usize, BucketError> {
        let Some(vb) = flusher.plain.pop_front() else {
            flusher.round = 0;
            return Ok(0);
        };
        flusher.was_waited = false;
        flusher.round -= 1;
        let mark = &flushers.states[vb.index()];
        mark.plain.store(false, Ordering::SeqCst);
        if !mark.dirty.load(Ordering::SeqCst) {
            return Ok(0);
        }
        let result = self.flush_vbucket(flushers, flusher, vb);
        if result.as_ref().is_err_and(BucketError::is_no_space)
            && !mark.plain.swap(true, Ordering::SeqCst)
        {
            flusher.plain.push_front(vb);
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
        if !flusher.waits && self.core.storage()?.is_being_written(vb) {
            self.core.totals.add(Total::ApplyDeferrals, 1);
            flushers.put_off(flusher, vb, self.core.setup.clock.now());
            return Ok(0);
        }
        let mark = &flushers.states[vb.index()];
        if let Err(error) = self.write_due_marker() {
            if !error.is_no_space() {
                flushers.put_later(flusher, vb, self.core.setup.clock.now(), true);
            }
            return Err(error);
        }
        // Before the changes are taken: those that come after that count.
        mark.dirty.store(false, Ordering::SeqCst);
        let (batch, to) = self.core.vbuckets[vb.index()]
            .lock()
            .store()
            .direct_batch(limit.items, limit.bytes);
        let before = self.core.setup.clock.now();
        let Some(batch) = batch else {
            self.publish_flushed(flushers, flusher, before, vb, to);
            return Ok(0);
        };
        let enough = || !flusher.waits && self.is_flusher_wanted(flushers, flusher, vb);
        let written = self.write_batches(vb, batch, to, limit, before.unix_ns, &enough);
        let now = self.core.setup.clock.now();
        let written = match written {
            Ok(written) => written,
            Err(error) => {
                mark.dirty.store(true, Ordering::SeqCst);
                self.core.totals.add(Total::FlushFailures, 1);
                self.shared.stuck.note(vb, &error);
                if !error.is_no_space() {
                    flushers.put_later(flusher, vb, now, true);
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
            .note_storage_age(now, mark.since_ns.load(Ordering::Relaxed));
        self.publish_flushed(flushers, flusher, now, vb, written.to);
        Ok(written.items)
    }

    /// Most that a commit has.
    fn flush_limit(&self, flushers: &Flushers) -> Limit {
        let config = self.core.config();
        let (items, bytes) = (config.flusher_batch_max_items, config.flush_batch_max_bytes);
        if flushers.hurry.load(Ordering::SeqCst) {
            return Limit { items, bytes };
        }
        // Who comes to wait is not to wait for long.
        Limit {
            items: items.min(BucketConfig::DIRECT_BATCH_ITEMS_MAX),
            bytes: bytes.min(BucketConfig::DIRECT_BATCH_BYTES_MAX),
        }
    }

    /// Whether someone waits for the flusher that has this vBucket, or for its thread.
    fn is_flusher_wanted(&self, flushers: &Flushers, flusher: &Flusher, vb: VbId) -> bool {
        flusher.was_waited
            || !flusher.waited.is_empty()
            || flushers.has_waited(vb)
            || self.core.setup.executor.lacks_threads(Pool::Writer)
    }

    /// Writes `batch`, which ends at `to`, and what comes behind it, until that is as large as a flush may be, or `enough`
    /// says so.
    fn write_batches(
        &self,
        vb: VbId,
        mut batch: ApplyBatch,
        mut to: Position,
        limit: Limit,
        now_ns: u64,
        enough: &dyn Fn() -> bool,
    ) -> Result<Written, BucketError> {
        let storage = self.core.storage()?;
        let mut written = Written {
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
                if commits.written_bytes() >= bytes_max || enough() {
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
        let mark = &flushers.states[vb.index()];
        let (done, acks) = (&mut flusher.done, &mut flusher.acks);
        match self.shared.publish(now, vb, to, None, done, acks) {
            AfterLog::More => {
                mark.since_ns.store(now.mono_ns, Ordering::Relaxed);
                mark.dirty.store(true, Ordering::SeqCst);
                if self.core.vbuckets[vb.index()]
                    .lock()
                    .durability()
                    .has_waiters()
                {
                    if !mark.waited.swap(true, Ordering::SeqCst) {
                        flusher.waited.push_back(vb);
                    }
                } else if !mark.plain.swap(true, Ordering::SeqCst) {
                    flusher.plain.push_back(vb);
                }
            }
            AfterLog::CommitsOnly => flushers.put_later(flusher, vb, now, false),
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

    /// Does what the start could not: syncs the files, and writes the mark.
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
