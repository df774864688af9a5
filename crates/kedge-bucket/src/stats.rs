//! The statistics of a bucket, under the names that Couchbase uses.

use crate::bucket::Bucket;
use kedge_bucket_core::{BucketPhase, Counter, DiskCalls, PendingIo, Total};
use kedge_vbucket::{Drift, VbState};
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Bucket {
    /// Passes the name and value of each general statistic to `each`.
    pub fn stats(&self, each: &mut dyn FnMut(&str, &str)) {
        for counter in Counter::ALL {
            each(
                counter.name(),
                &self.core.counters.sum(*counter).to_string(),
            );
        }
        for (name, value) in self.figures() {
            each(name, &value.to_string());
        }
        let config = self.core.config();
        each("ep_bucket_type", "persistent");
        self.persistence.compactions().throttle_stats(each);
        each("ep_compression_mode", config.compression.name());
        each(
            "ep_min_compression_ratio",
            &config.min_compression_ratio.get().to_string(),
        );
        each("ep_backend", "couchdb");
        each("ep_warmup_thread", self.residency.warmup().thread());
        each(
            "ep_degraded_mode",
            if self.core.phase() == BucketPhase::Open {
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

    /// Returns the numeric statistics, except the per-thread counters.
    #[must_use]
    pub fn figures(&self) -> Vec<(&'static str, u64)> {
        let mut documents = 0;
        let mut tombstones = 0;
        let mut queued = 0;
        let mut expired = 0;
        let mut unapplied = 0;
        let mut not_resident = 0;
        let mut drift = [Drift::default(); 2];
        for vbucket in &self.core.vbuckets {
            let vbucket = vbucket.lock();
            documents += vbucket.documents().count() as u64;
            tombstones += vbucket.table().tombstones() as u64;
            queued += vbucket.changes().queued() as u64;
            expired += vbucket.documents().expired();
            drift[usize::from(vbucket.state() != VbState::Active)] += vbucket.history().drift();
            unapplied += vbucket.unapplied().items as u64;
            let residency = vbucket.documents().residency();
            not_resident += (residency.on_disk_only + residency.without_value) as u64;
        }
        let resident = documents.saturating_sub(not_resident);
        let resident_percent = (resident * 100).checked_div(documents).unwrap_or(100);
        let limit = self.core.quota.limit();
        vec![
            ("curr_items", documents),
            ("curr_items_tot", documents),
            ("vb_active_num", self.core.vbuckets.len() as u64),
            ("vb_active_curr_items", documents),
            ("vb_active_tombstones", tombstones),
            ("vb_active_expired", expired),
            ("vb_replica_num", 0),
            ("vb_pending_num", 0),
            ("mem_used", self.core.quota.used()),
            ("ep_max_size", limit),
            ("ep_mem_high_wat", self.core.quota.high()),
            ("ep_mem_low_wat", self.core.quota.low()),
            ("ep_checkpoint_memory", self.core.quota.checkpoint_bytes()),
            ("ep_cursor_memory", self.core.quota.cursor_bytes()),
            ("ep_queue_size", queued),
            ("ep_diskqueue_items", queued),
            (
                "ep_parked_commands",
                u64::try_from(self.core.parked.load(Ordering::Relaxed)).unwrap_or(0),
            ),
            ("ep_disk_full", u64::from(self.core.quota.disk_full())),
            ("ep_disk_refuses", u64::from(self.core.quota.disk_refuses())),
            ("ep_unapplied_items", unapplied),
            ("ep_num_non_resident", not_resident),
            ("vb_active_num_non_resident", not_resident),
            ("vb_active_perc_mem_resident", resident_percent),
            ("ep_range_scans_open", self.scans.scans.count() as u64),
            ("ep_pinned_bytes", self.core.quota.pinned_bytes()),
        ]
        .into_iter()
        .chain(self.totals())
        .chain(self.residency.figures())
        .chain(self.persistence.gauges())
        .chain(self.disk_failures())
        .chain(drift_figures(drift))
        .collect()
    }

    /// Returns the numbers of failed reads, and of failed writes and syncs, including those on a full disk.
    fn disk_failures(&self) -> [(&'static str, u64); 2] {
        let totals = &self.core.totals;
        let read = totals.get(Total::FetchFailures) + totals.get(Total::BackfillFailures);
        [
            ("ep_data_read_failed", read),
            ("ep_data_write_failed", self.core.io_stats.failed_writes()),
        ]
    }

    /// Returns statistics of the I/O calls that are in progress. Calls count as slow after the duration `slow`.
    #[must_use]
    pub fn pending_io(&self, slow: Duration) -> PendingIo {
        self.core.io_stats.pending_io(slow)
    }

    /// Returns the counters of I/O calls by which the disk is judged.
    #[must_use]
    pub fn disk_calls(&self) -> DiskCalls {
        self.core.io_stats.disk_calls()
    }

    fn totals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let totals = Total::ALL.iter();
        totals.map(|total| (total.name(), self.core.totals.get(*total)))
    }
}

/// Returns the statistics of clock drift, measured from the CAS values that active and other vBuckets received.
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
