//! The figures of a bucket, by the names that operators of this kind of server know.

use crate::bucket::{Bucket, Phase};
use crate::counters::{Counter, Total};
use kedge_types::VbId;
use kedge_vbucket::{Drift, VbState};
use std::sync::atomic::Ordering;

impl Bucket {
    /// Gives the general statistics to `each`, a name and a value at a time.
    pub fn stats(&self, each: &mut dyn FnMut(&str, &str)) {
        for counter in Counter::ALL {
            each(counter.name(), &self.counters.sum(*counter).to_string());
        }
        for (name, value) in self.figures() {
            each(name, &value.to_string());
        }
        let config = self.config();
        each("ep_bucket_type", "persistent");
        each("ep_compression_mode", config.compression.name());
        each(
            "ep_min_compression_ratio",
            &config.min_compression_ratio.get().to_string(),
        );
        each("ep_backend", "couchdb");
        each("ep_warmup_thread", self.warmup_thread());
        each(
            "ep_degraded_mode",
            if self.phase() == Phase::Open {
                "0"
            } else {
                "1"
            },
        );
        each(
            "ep_flush_enabled",
            if config.flush_enabled {
                "true"
            } else {
                "false"
            },
        );
        each("uuid", &config.uuid);
    }

    /// The statistics that are numbers and no counters.
    #[must_use]
    pub fn figures(&self) -> Vec<(&'static str, u64)> {
        let mut documents = 0;
        let mut tombstones = 0;
        let mut queued = 0;
        let mut expired = 0;
        let mut unapplied = 0;
        let mut not_resident = 0;
        let mut drift = [Drift::default(); 2];
        for vbucket in &self.vbuckets {
            let vbucket = vbucket.lock();
            documents += vbucket.documents() as u64;
            tombstones += vbucket.tombstones() as u64;
            queued += vbucket.queued() as u64;
            expired += vbucket.expired();
            drift[usize::from(vbucket.state() != VbState::Active)] += vbucket.drift();
            unapplied += vbucket.unapplied().items as u64;
            let residency = vbucket.residency();
            not_resident += (residency.on_disk_only + residency.without_value) as u64;
        }
        let resident = documents.saturating_sub(not_resident);
        let resident_percent = (resident * 100).checked_div(documents).unwrap_or(100);
        let limit = self.quota.limit();
        let log = *self.log_stats.lock();
        vec![
            ("curr_items", documents),
            ("curr_items_tot", documents),
            ("vb_active_num", self.vbuckets.len() as u64),
            ("vb_active_curr_items", documents),
            ("vb_active_tombstones", tombstones),
            ("vb_active_expired", expired),
            ("vb_replica_num", 0),
            ("vb_pending_num", 0),
            ("mem_used", self.quota.used()),
            ("ep_max_size", limit),
            ("ep_mem_high_wat", self.quota.high()),
            ("ep_mem_low_wat", self.quota.low()),
            ("ep_checkpoint_memory", self.quota.checkpoint_bytes()),
            ("ep_cursor_memory", self.quota.cursor_bytes()),
            ("ep_queue_size", queued),
            ("ep_diskqueue_items", queued),
            (
                "ep_parked_commands",
                u64::try_from(self.parked.load(Ordering::Relaxed)).unwrap_or(0),
            ),
            ("ep_disk_full", u64::from(self.quota.disk_full())),
            ("ep_disk_refuses", u64::from(self.quota.disk_refuses())),
            ("ep_vb_quarantined", self.count_quarantined()),
            ("ep_vb_damaged", self.stuck.count() as u64),
            ("ep_log_bytes", log.data_bytes),
            ("ep_log_file_bytes", log.size_bytes + log.spare_bytes),
            ("ep_log_segments", log.segments),
            ("ep_log_syncs", log.syncs),
            ("ep_log_batches", log.appended_batches),
            ("ep_log_records", log.appended_records),
            ("ep_log_appended_bytes", log.appended_bytes),
            ("ep_log_needed_bytes", self.truncation.needed_bytes(0)),
            ("ep_unapplied_items", unapplied),
            ("ep_num_non_resident", not_resident),
            ("vb_active_num_non_resident", not_resident),
            ("vb_active_perc_mem_resident", resident_percent),
            ("ep_bg_remaining_items", self.fetches.waiting() as u64),
            ("ep_waiting_for_memory", self.waiting_for_memory() as u64),
            ("ep_waiting_for_active", self.waiting_for_active() as u64),
            ("ep_range_scans_open", self.scans.count() as u64),
            ("ep_pinned_bytes", self.quota.pinned_bytes()),
        ]
        .into_iter()
        .chain(self.totals())
        .chain(self.warmup.figures())
        .chain(self.storage_figures())
        .chain(self.disk_failures())
        .chain(self.file_sizes())
        .chain(self.compaction_figures())
        .chain(drift_figures(drift))
        .collect()
    }

    fn totals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let totals = Total::ALL.iter();
        totals.map(|total| (total.name(), self.totals.get(*total)))
    }

    /// What of the files counts, and their lengths, in bytes. A file that cannot be read is left out.
    fn file_sizes(&self) -> [(&'static str, u64); 2] {
        let (mut data, mut file) = (0, 0);
        for vb in (0..self.vbuckets()).map(VbId) {
            if let Ok(Some(figures)) = self.file_figures(vb) {
                data += figures.data_bytes;
                file += figures.file_bytes;
            }
        }
        [("ep_db_data_size", data), ("ep_db_file_size", file)]
    }

    fn storage_figures(&self) -> [(&'static str, u64); 14] {
        let storage = self.storage.get().map(kedge_storage::Storage::stats);
        let storage = storage.unwrap_or_default();
        [
            ("ep_storage_commits", storage.commits),
            ("ep_storage_committed_items", storage.committed_items),
            ("ep_storage_failed_commits", storage.failed_commits),
            ("ep_storage_open_files", storage.kept_files),
            ("ep_storage_open_files_bytes", storage.kept_bytes),
            ("ep_storage_handles", storage.handles),
            ("ep_storage_opened", storage.opened),
            ("ep_storage_hits", storage.hits),
            ("ep_storage_misses", storage.misses),
            ("ep_storage_evictions", storage.evictions),
            ("ep_storage_read_bytes", storage.read_bytes),
            ("ep_storage_written_bytes", storage.written_bytes),
            ("ep_storage_syncs", storage.syncs + storage.directory_syncs),
            ("ep_storage_scans", storage.scans),
        ]
    }
}

/// What is known of the clocks of others, from CAS values that active vBuckets and others took.
fn drift_figures([active, replica]: [Drift; 2]) -> [(&'static str, u64); 9] {
    let exceeded = active.ahead + active.behind + replica.ahead + replica.behind;
    [
        ("ep_active_hlc_drift", active.total_us),
        ("ep_active_hlc_drift_count", active.samples),
        ("ep_active_ahead_exceptions", active.ahead),
        ("ep_active_behind_exceptions", active.behind),
        ("ep_replica_hlc_drift", replica.total_us),
        ("ep_replica_hlc_drift_count", replica.samples),
        ("ep_replica_ahead_exceptions", replica.ahead),
        ("ep_replica_behind_exceptions", replica.behind),
        ("ep_clock_cas_drift_threshold_exceeded", exceeded),
    ]
}
