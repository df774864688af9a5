//! A batch of changes on its way into a file: taken from the vBucket, written part by part, and returned.

use super::throttle::CommitThrottle;
use super::{Applier, ApplyOutcome, LogApplier};
use crate::truncation::has_work;
use kedge_bucket_core::{BucketError, Timing, Total};
use kedge_storage::{CommitGroup, Storage, StorageError};
use kedge_types::{Seqno, VbId};
use kedge_vbucket::{ApplyBatch, PersistedState};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// A batch of which some parts are not written yet.
#[derive(Debug)]
pub(super) struct PartialApply {
    batch: ApplyBatch,
    pub(super) parts: VecDeque<PartCommit>,
    /// True if the file of an earlier history is to be replaced first.
    replace: bool,
}

/// The content of one commit of the file.
#[derive(Debug)]
pub(super) struct PartCommit {
    items: Range<usize>,
    state: PersistedState,
    upto: Seqno,
}

impl PartialApply {
    fn new(mut batch: ApplyBatch, max_items: usize, max_bytes: usize) -> Self {
        let replace = batch.replaces_file();
        let mut at = 0;
        let parts = batch
            .parts(max_items, max_bytes)
            .map(|part| {
                let from = at;
                at += part.items.len();
                PartCommit {
                    items: from..at,
                    state: part.state,
                    upto: part.upto,
                }
            })
            .collect();
        Self {
            batch,
            parts,
            replace,
        }
    }
}

impl LogApplier {
    /// Takes all changes that a vBucket has to apply. If there are none, returns the outcome of the run.
    pub(super) fn begin_apply(&self, vb: VbId) -> Result<PartialApply, ApplyOutcome> {
        let retention = self.shared.truncation.retention(vb);
        let mut vbucket = self.core.vbuckets[vb.index()].lock();
        let (batch, _) = self
            .core
            .measure(&mut vbucket, |vbucket| vbucket.store_mut().begin_apply());
        retention.is_queued.store(false, Ordering::Relaxed);
        let Some(batch) = batch else {
            if !has_work(&vbucket) {
                retention.forget_queued();
                return Err(ApplyOutcome::Applied);
            }
            // A batch is in progress, or the log does not have the last reset yet.
            retention.is_queued.store(true, Ordering::Relaxed);
            let now_ns = self.core.setup.clock.now().mono_ns;
            self.shared
                .apply_queues
                .shard_of(vb)
                .incoming
                .lock()
                .push((vb, now_ns));
            return Err(ApplyOutcome::NotReady);
        };
        retention.begin_write();
        drop(vbucket);
        let config = self.core.config();
        let (items, bytes) = (config.flusher_batch_max_items, config.flush_batch_max_bytes);
        Ok(PartialApply::new(batch, items, bytes))
    }

    /// Writes the next parts, after a pending replacement of the file. With a throttle, the write has pauses, and fails
    /// if the file is in use. Without one, a thread waits for the result, so the write has no pauses and waits for the
    /// file.
    pub(super) fn apply_parts(
        &self,
        vb: VbId,
        partial: &mut PartialApply,
        throttle: Option<&mut CommitThrottle<'_>>,
    ) -> Result<(), BucketError> {
        if partial.parts.is_empty() {
            return Ok(());
        }
        let storage = self.core.storage()?;
        let before = self.core.setup.clock.now();
        let replaced = partial.replace;
        if replaced {
            storage.replace(vb, &partial.batch.empty_state(), before.unix_ns)?;
            partial.replace = false;
        }
        let is_empty = partial.parts.iter().all(|part| part.items.is_empty());
        let commits = if partial.batch.removes_file() {
            storage.delete(vb)?;
            1
        } else if is_empty && replaced {
            // The new empty file represents the state completely.
            1
        } else {
            self.commit_parts(storage, vb, partial, before.unix_ns, throttle)?
        };
        let now_ns = self.core.setup.clock.now().mono_ns;
        let took_us = now_ns.saturating_sub(before.mono_ns) / 1_000;
        self.core
            .timings
            .record_us(u16::MAX, Timing::ApplyCommit, took_us);
        self.core.totals.add(Total::ApplyCommits, commits as u64);
        self.shared.changed_files.on_changed(vb);
        let mut upto = Seqno(0);
        for part in partial.parts.drain(..commits) {
            let items = &partial.batch.items()[part.items];
            self.core
                .timings
                .record_us(u16::MAX, Timing::ApplyBatchItems, items.len() as u64);
            self.core
                .totals
                .add(Total::AppliedItems, items.len() as u64);
            let bytes: usize = items.iter().map(|it| it.item().heap_bytes()).sum();
            self.core.totals.add(Total::AppliedBytes, bytes as u64);
            upto = part.upto;
        }
        let history = partial.batch.history();
        let mut vbucket = self.core.vbuckets[vb.index()].lock();
        self.core.measure(&mut vbucket, |vbucket| {
            vbucket.store_mut().on_applied(history, upto);
        });
        drop(vbucket);
        self.shared.events.memory_freed();
        Ok(())
    }

    /// Writes parts in commits that share their syncs, until the size limit of a flush is reached or, with a throttle,
    /// a thread waits. Returns the number of written parts.
    fn commit_parts(
        &self,
        storage: &Storage,
        vb: VbId,
        partial: &PartialApply,
        now_ns: u64,
        mut throttle: Option<&mut CommitThrottle<'_>>,
    ) -> Result<usize, StorageError> {
        let bytes_max = self.core.config().flush_batch_max_bytes as u64;
        let is_throttled = throttle.is_some();
        let write = |commits: &mut CommitGroup<'_, '_>| {
            for (done, part) in partial.parts.iter().enumerate() {
                let is_full = commits.written_bytes() >= bytes_max;
                if done > 0
                    && (is_full || (is_throttled && self.shared.apply_queues.has_waiter(vb)))
                {
                    return Ok(done);
                }
                let items = &partial.batch.items()[part.items.clone()];
                let mut pause = || {
                    if let Some(throttle) = &mut throttle {
                        throttle.take(storage);
                    }
                };
                let committed = commits.write(items, &part.state, &mut pause)?;
                self.shared
                    .note_overwritten(vb, partial.batch.history(), items, &committed);
            }
            Ok(partial.parts.len())
        };
        if is_throttled {
            storage.try_commit_together(vb, now_ns, write)
        } else {
            storage.commit_together(vb, now_ns, write)
        }
    }

    /// Returns a batch to the vBucket after all parts were written, or after a failure. Unwritten changes are queued
    /// again.
    pub(super) fn end_apply(&self, vb: VbId, partial: PartialApply, since_ns: u64) {
        let retention = self.shared.truncation.retention(vb);
        let is_written = partial.parts.is_empty();
        let mut vbucket = self.core.vbuckets[vb.index()].lock();
        let (dropped, _) = self.core.measure(&mut vbucket, |vbucket| {
            vbucket.store_mut().end_apply(partial.batch)
        });
        if is_written {
            retention.end_write();
        } else {
            retention.fail_write();
            if !retention.is_queued.swap(true, Ordering::Relaxed) {
                self.shared
                    .apply_queues
                    .shard_of(vb)
                    .incoming
                    .lock()
                    .push((vb, since_ns));
            }
        }
        drop(vbucket);
        // Freeing many documents takes long, so it is done without the lock.
        drop(dropped);
        self.shared.events.memory_freed();
    }

    pub(super) fn on_apply_failed(&self, applier: &mut Applier, vb: VbId, error: &BucketError) {
        self.core.totals.add(Total::ApplyFailures, 1);
        applier.last_error = Some(error.to_string());
        if !error.is_passing() {
            self.core.fail(&error.to_string());
        } else if !self.shared.stuck.note(vb, error)
            && !std::mem::replace(&mut applier.failing, true)
        {
            tracing::error!(
                bucket = self.core.name(),
                vbucket = %vb,
                %error,
                "changes could not be written to the vBucket's file: they stay in the log until a retry succeeds"
            );
        }
    }
}
