//! A batch on its way into a file: taken, written part by part, given back.

use super::throttle::CommitThrottle;
use super::{Applier, ApplyOutcome, LogApplier};
use crate::truncation::has_work;
use kedge_bucket_core::BucketError;
use kedge_bucket_core::Timing;
use kedge_bucket_core::Total;
use kedge_storage::{Commits, Storage, StorageError};
use kedge_types::{Seqno, VbId};
use kedge_vbucket::{ApplyBatch, PersistedState};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// A batch of which not all parts are written.
#[derive(Debug)]
pub(super) struct PartialApply {
    batch: ApplyBatch,
    pub(super) parts: VecDeque<PartCommit>,
    /// The file of an earlier history has to go first.
    replace: bool,
}

/// One commit of the file.
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
    /// Takes all that a vBucket has to apply. If that is nothing, the turn is over.
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
            // A batch is under way, or the log does not have the last reset yet.
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

    /// Writes the next parts, with what has to come before them: with rests, unless somebody else has the file; or else for
    /// someone who waits, at once, and when the file is there to be written to.
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
            // An empty file that was just made says all there is to say.
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

    /// Commits parts that share their syncs, until they are as large as a flush may be, or someone waits. Returns how many.
    fn commit_parts(
        &self,
        storage: &Storage,
        vb: VbId,
        partial: &PartialApply,
        now_ns: u64,
        mut throttle: Option<&mut CommitThrottle<'_>>,
    ) -> Result<usize, StorageError> {
        let bytes_max = self.core.config().flush_batch_max_bytes as u64;
        let is_patient = throttle.is_some();
        let write = |commits: &mut Commits<'_, '_>| {
            for (done, part) in partial.parts.iter().enumerate() {
                let is_full = commits.written_bytes() >= bytes_max;
                if done > 0 && (is_full || (is_patient && self.shared.apply_queues.has_waiter(vb)))
                {
                    return Ok(done);
                }
                let items = &partial.batch.items()[part.items.clone()];
                let mut rest = || {
                    if let Some(throttle) = &mut throttle {
                        throttle.take(storage);
                    }
                };
                let committed = commits.write(items, &part.state, &mut rest)?;
                self.shared
                    .note_overwritten(vb, partial.batch.history(), items, &committed);
            }
            Ok(partial.parts.len())
        };
        if is_patient {
            storage.try_commit_together(vb, now_ns, write)
        } else {
            storage.commit_together(vb, now_ns, write)
        }
    }

    /// A batch was written, or given up; what of it is not in the file waits again.
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
        // Many documents may go with these: not under the lock.
        drop(dropped);
        self.shared.events.memory_freed();
    }

    pub(super) fn on_apply_failed(&self, applier: &mut Applier, vb: VbId, error: &BucketError) {
        self.core.totals.add(Total::ApplyFailures, 1);
        if !error.is_passing() {
            self.core.fail(&error.to_string());
        } else if !self.shared.stuck.note(vb, error)
            && !std::mem::replace(&mut applier.failing, true)
        {
            tracing::error!(
                bucket = self.core.name(),
                vbucket = %vb,
                %error,
                "changes stay in the log, as they cannot be written into the vBucket's file"
            );
        }
    }
}
