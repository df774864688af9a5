//! The parts that the components of persistence share.

use crate::applier::queues::ApplyQueues;
use crate::compaction::changed::ChangedFiles;
use crate::compaction::throttle::CompactionThrottle;
use crate::events::EventSink;
use crate::log_space::LogSpace;
use crate::queues::WriteQueues;
use crate::stuck::StuckFiles;
use crate::truncation::{LoggedRecords, TruncationPoint};
use kedge_bucket_core::{BucketCore, BucketError, Timing};
use kedge_storage::Committed;
use kedge_sync::{RankedMutex, ranks::Vbucket};
use kedge_types::{Now, Seqno, Status, VbId};
use kedge_vbucket::{AfterLog, Done, FileChange, Position, VBucket};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The queues between the components, and the results of writes.
pub(crate) struct SharedState {
    pub(crate) core: Arc<BucketCore>,
    pub(crate) queues: Arc<WriteQueues>,
    pub(crate) events: Arc<EventSink>,
    pub(crate) truncation: Arc<TruncationPoint>,
    pub(crate) apply_queues: ApplyQueues,
    pub(crate) log_space: LogSpace,
    pub(crate) changed_files: ChangedFiles,
    pub(crate) compaction_throttle: CompactionThrottle,
    pub(crate) stuck: StuckFiles,
    /// Without a log: the marker that changes may be lost is not on disk yet. No file is written before it is.
    pub(crate) marker_is_due: AtomicBool,
}

impl SharedState {
    pub(crate) fn new(core: Arc<BucketCore>, queues: Arc<WriteQueues>) -> Self {
        let config = core.config();
        let events = Arc::new(EventSink::default());
        let truncation = Arc::new(TruncationPoint::new(config.vbuckets));
        Self {
            queues,
            apply_queues: ApplyQueues::new(
                Arc::clone(&core),
                Arc::clone(&events),
                Arc::clone(&truncation),
            ),
            events,
            truncation,
            log_space: LogSpace::new(Arc::clone(&core)),
            changed_files: ChangedFiles::new(Arc::clone(&core)),
            compaction_throttle: CompactionThrottle::new(config.compaction.throttle),
            stuck: StuckFiles::new(Arc::clone(&core)),
            marker_is_due: AtomicBool::new(false),
            core,
        }
    }

    /// A batch was written, or was not. To be called before another thread can write the next: else what is found out here first
    /// would count last, and writes would be withheld although nothing is left that could be tried again.
    pub(crate) fn on_commit_result(&self, result: &Result<usize, BucketError>) {
        match result {
            Ok(0) => {}
            Ok(_) => self.on_written(),
            Err(error) if error.is_no_space() => {
                if !self.core.quota.set_disk_full(true) {
                    tracing::error!(bucket = self.core.name(), %error, "the disk is full: writes get a temporary failure");
                    self.log_space.on_disk_full();
                }
                self.events.writes_refused();
            }
            Err(error @ BucketError::Log(_)) if error.is_passing() => {
                if !self.core.quota.set_disk_refuses(true) {
                    tracing::error!(
                        bucket = self.core.name(),
                        %error,
                        "the log cannot be written to now: writes get a temporary failure until that works"
                    );
                }
                self.events.writes_refused();
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
            self.log_space.on_disk_space_available();
        }
        if self.core.quota.set_disk_refuses(false) {
            tracing::info!(bucket = self.core.name(), "the log can be written to again");
        }
    }

    /// A vBucket's changes since `since_ns` are durable.
    pub(crate) fn record_storage_age(&self, now: Now, since_ns: u64) {
        let age_us = now.mono_ns.saturating_sub(since_ns) / 1_000;
        self.core
            .timings
            .record_us(u16::MAX, Timing::StorageAge, age_us);
    }

    /// What a vBucket has in front of `to` is durable: cursors move, who waits for it ends in `done`, and what is to be
    /// acknowledged to the active that it follows comes in `acks`.
    pub(crate) fn publish(
        &self,
        now: Now,
        vb: VbId,
        to: Position,
        logged: Option<LoggedRecords>,
        done: &mut Vec<Done>,
        acks: &mut Vec<(VbId, Seqno)>,
    ) -> AfterLog {
        let mut vbucket = self.core.vbuckets[vb.index()].lock();
        let (after, mut ended) = self
            .core
            .measure(&mut vbucket, |vbucket| vbucket.on_logged(to));
        done.append(&mut ended);
        acks.extend(vbucket.take_ack().map(|seqno| (vb, seqno)));
        if let Some(logged) = logged {
            self.apply_queues.on_logged(&vbucket, logged, now.mono_ns);
        }
        after
    }

    /// Logs an error of the disk, and returns the status that a client gets; an error that does not pass ends the bucket.
    pub(crate) fn report_disk_error(&self, vb: VbId, error: &BucketError, what: &str) -> Status {
        if error.is_passing() {
            tracing::error!(bucket = self.core.name(), vbucket = %vb, %error, "{what}");
        } else {
            self.core.fail(&error.to_string());
        }
        Status::TemporaryFailure
    }

    /// Tells a vBucket which documents the file had already among those that nobody knew that of. They stay in memory
    /// until it is told.
    pub(crate) fn note_overwritten(
        &self,
        vb: VbId,
        history: u32,
        items: &[FileChange],
        committed: &Committed,
    ) {
        let blind = |(_, apply): &(usize, &FileChange)| matches!(apply, FileChange::Document(item) if item.is_blind());
        let blind: Vec<(usize, &FileChange)> = items.iter().enumerate().filter(blind).collect();
        if blind.is_empty() {
            return;
        }
        let mut vbucket = self.core.vbuckets[vb.index()].lock();
        for (index, apply) in blind {
            vbucket
                .store_mut()
                .applied_over(history, apply.item(), committed.was_live(index));
        }
    }

    /// Whether the vBucket's file could not be read at the start.
    pub(crate) fn is_quarantined(&self, vb: VbId) -> bool {
        self.core.vbuckets[vb.index()].lock().is_quarantined()
    }

    /// Returns the number of quarantined vBuckets.
    pub(crate) fn count_quarantined(&self) -> u64 {
        let is_in_quarantine =
            |vbucket: &&RankedMutex<Vbucket, VBucket>| vbucket.lock().is_quarantined();
        self.core.vbuckets.iter().filter(is_in_quarantine).count() as u64
    }
}
