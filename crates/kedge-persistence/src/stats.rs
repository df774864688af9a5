//! The gauges of persistence.

use crate::persistence::Persistence;
use kedge_storage::FileEncryption;
use kedge_types::VbId;

impl Persistence {
    /// Returns the statistics that are gauges, by name.
    #[must_use]
    pub fn gauges(&self) -> Vec<(&'static str, u64)> {
        let log = *self.writers.log.stats.lock();
        let log = [
            ("ep_vb_quarantined", self.shared.count_quarantined()),
            ("ep_vb_damaged", self.shared.stuck.count() as u64),
            ("ep_log_bytes", log.data_bytes),
            ("ep_log_file_bytes", log.size_bytes + log.spare_bytes),
            ("ep_log_segments", log.segments),
            ("ep_log_syncs", log.syncs),
            ("ep_log_batches", log.appended_batches),
            ("ep_log_records", log.appended_records),
            ("ep_log_appended_bytes", log.appended_bytes),
            (
                "ep_log_needed_bytes",
                self.shared.truncation.needed_bytes(0),
            ),
        ];
        log.into_iter()
            .chain(self.storage_gauges())
            .chain(self.file_sizes())
            .chain(self.encryption_gauges())
            .chain(self.compactions.gauges())
            .collect()
    }

    /// Returns the total live data and the total length of the files, in bytes. Files that cannot be read are omitted.
    fn file_sizes(&self) -> [(&'static str, u64); 2] {
        let (mut data, mut file) = (0, 0);
        for vb in (0..self.core.vbucket_count()).map(VbId) {
            if let Ok(Some(figures)) = self.core.file_figures(vb) {
                data += figures.data_bytes;
                file += figures.file_bytes;
            }
        }
        [("ep_db_data_size", data), ("ep_db_file_size", file)]
    }

    fn encryption_gauges(&self) -> [(&'static str, u64); 4] {
        let keyring = self.core.setup.keyring.as_ref();
        let keys = keyring.map_or(0, |keyring| keyring.keys().len());
        let files = self.core.storage.get();
        let files = files.map(|files| FileEncryption::of(files).counts());
        let files = files.unwrap_or_default();
        [
            ("ep_encryption_keys", keys as u64),
            ("ep_encryption_encrypted_files", files.encrypted),
            ("ep_encryption_plain_files", files.plain),
            ("ep_encryption_files_to_rewrite", files.replaced),
        ]
    }

    fn storage_gauges(&self) -> [(&'static str, u64); 14] {
        let storage = self.core.storage.get().map(kedge_storage::Storage::stats);
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
