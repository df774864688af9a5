//! The state that the components of persistence share.

use crate::applier::queues::ApplyQueues;
use crate::compaction::changed::ChangedFiles;
use crate::compaction::clients::ClientMeter;
use crate::compaction::throttle::CompactionThrottle;
use crate::encryption_state::EncryptionState;
use crate::events::EventSink;
use crate::log_space::LogSpace;
use crate::queues::WriteQueues;
use crate::stuck::StuckFiles;
use crate::truncation::{LoggedRecords, TruncationPoint};
use kedge_bucket_core::{BucketCore, BucketError, Timing};
use kedge_storage::CommitResult;
use kedge_sync::{RankedMutex, ranks::Vbucket};
use kedge_types::{Now, Seqno, Status, VbId};
use kedge_vbucket::{AfterLog, CompletedCommand, FileChange, Position, VBucket};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The queues between the components, and the publication of durable changes.
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
    pub(crate) encryption: EncryptionState,
    /// True if the marker of an open bucket without a log is still to be written. No file is written before it.
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
            compaction_throttle: CompactionThrottle::new(
                config.compaction.throttle,
                ClientMeter::new(Arc::clone(&core)),
            ),
            stuck: StuckFiles::new(Arc::clone(&core)),
            encryption: EncryptionState::default(),
            marker_is_due: AtomicBool::new(false),
            core,
        }
    }

    /// Handles the result of a batch. The caller still holds the lock of the writer, so that results are handled in the
    /// order of the batches. Otherwise writes could stay refused with no change left to retry.
    pub(crate) fn on_commit_result(&self, result: &Result<usize, BucketError>) {
        match result {
            Ok(0) => {}
            Ok(_) => self.on_written(),
            Err(error) if error.is_no_space() => {
                if !self.core.quota.set_disk_full(true) {
                    tracing::error!(
                        bucket = self.core.name(),
                        %error,
                        "the disk is full: writes return a temporary failure"
                    );
                    self.log_space.on_disk_full();
                }
                self.events.writes_refused();
            }
            Err(error @ BucketError::Log(_)) if error.is_passing() => {
                if !self.core.quota.set_disk_refuses(true) {
                    tracing::error!(
                        bucket = self.core.name(),
                        %error,
                        "the log cannot be written to: writes return a temporary failure until a retry succeeds"
                    );
                }
                self.events.writes_refused();
            }
            Err(error) if error.is_passing() => {
                tracing::error!(
                    bucket = self.core.name(),
                    %error,
                    "changes could not be made durable: the write will be retried"
                );
            }
            Err(error) => self.core.fail(&error.to_string()),
        }
    }

    /// Accepts writes again after a successful batch. The batch may be empty: states of vBuckets are written without
    /// counting as changes, and changes that failed may be obsolete. The next write then detects the condition of the
    /// disk.
    pub(crate) fn on_written(&self) {
        if self.core.quota.set_disk_full(false) {
            tracing::info!(
                bucket = self.core.name(),
                "the disk has free space again: writes are accepted"
            );
            self.log_space.on_disk_space_available();
        }
        if self.core.quota.set_disk_refuses(false) {
            tracing::info!(
                bucket = self.core.name(),
                "the log can be written to again: writes are accepted"
            );
        }
    }

    /// Records the age of a vBucket's changes when they became durable. `since_ns` is the time of the oldest one.
    pub(crate) fn record_storage_age(&self, now: Now, since_ns: u64) {
        let age_us = now.mono_ns.saturating_sub(since_ns) / 1_000;
        self.core
            .timings
            .record_us(u16::MAX, Timing::StorageAge, age_us);
    }

    /// Publishes the changes of a vBucket before `to` as durable: moves cursors, adds completed commands to `done`, and
    /// adds the seqno to be acknowledged to the active to `acks`.
    pub(crate) fn publish(
        &self,
        now: Now,
        vb: VbId,
        to: Position,
        logged: Option<LoggedRecords>,
        done: &mut Vec<CompletedCommand>,
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

    /// Logs a disk error with the message `what`, and returns the status for the client. An error that is not transient
    /// fails the bucket.
    pub(crate) fn report_disk_error(&self, vb: VbId, error: &BucketError, what: &str) -> Status {
        if error.is_passing() {
            tracing::error!(bucket = self.core.name(), vbucket = %vb, %error, "{what}");
        } else {
            self.core.fail(&error.to_string());
        }
        Status::TemporaryFailure
    }

    /// Reports to a vBucket which of its blind writes replaced a live document in the file. The documents stay in
    /// memory until then.
    pub(crate) fn note_overwritten(
        &self,
        vb: VbId,
        history: u32,
        items: &[FileChange],
        committed: &CommitResult,
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

    /// Returns whether the vBucket's file could not be read at the start.
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
