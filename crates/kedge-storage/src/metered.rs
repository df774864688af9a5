//! Counters of disk calls.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kedge_disk::{DiskCall, DiskError, DiskObserver, Operation};

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct DiskCounters {
    /// Number of files opened or created.
    pub(crate) opened: AtomicU64,
    /// Number of files closed.
    pub(crate) closed: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) directory_syncs: AtomicU64,
}

impl DiskObserver for DiskCounters {
    fn around<R>(
        &self,
        asked: &DiskCall<'_>,
        run: impl FnOnce() -> Result<R, DiskError>,
    ) -> Result<R, DiskError> {
        match asked.operation {
            Operation::Read => self.read_bytes.fetch_add(asked.bytes as u64, Relaxed),
            Operation::Write => self.written_bytes.fetch_add(asked.bytes as u64, Relaxed),
            Operation::Sync => self.syncs.fetch_add(1, Relaxed),
            Operation::SyncDir => self.directory_syncs.fetch_add(1, Relaxed),
            Operation::Open | Operation::Create => {
                let file = run()?;
                self.opened.fetch_add(1, Relaxed);
                return Ok(file);
            }
            _ => 0,
        };
        run()
    }

    fn on_close(&self) {
        self.closed.fetch_add(1, Relaxed);
    }
}
