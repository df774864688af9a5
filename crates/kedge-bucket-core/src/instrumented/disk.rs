//! A disk whose operations are counted and timed.

use super::{Io, IoStatistics};
use kedge_disk::{Disk, DiskCall, DiskError, DiskObserver, ObservedDisk, Operation};
use std::sync::Arc;

/// Counts and times the operations of a disk.
#[derive(Debug)]
pub struct InstrumentedDisk {
    io_stats: Arc<IoStatistics>,
    timed: bool,
}

impl InstrumentedDisk {
    /// Returns `disk` with its operations counted. Their times are recorded if `timed`.
    pub fn over(disk: &Arc<dyn Disk>, io_stats: &Arc<IoStatistics>, timed: bool) -> Arc<dyn Disk> {
        let io_stats = Arc::clone(io_stats);
        let observer = Arc::new(Self { io_stats, timed });
        Arc::new(ObservedDisk::new(Arc::clone(disk), observer))
    }
}

impl DiskObserver for InstrumentedDisk {
    fn around<R>(
        &self,
        asked: &DiskCall<'_>,
        run: impl FnOnce() -> Result<R, DiskError>,
    ) -> Result<R, DiskError> {
        let (io, timed) = match asked.operation {
            Operation::Read => (Io::Read(asked.bytes), self.timed),
            Operation::Write => (Io::Write(asked.bytes), self.timed),
            Operation::Sync | Operation::SyncDir => (Io::Sync, self.timed),
            // It writes nothing, but fails on a full disk.
            Operation::Allocate => (Io::Write(0), false),
            _ => return run(),
        };
        self.io_stats.observe(io, timed, run)
    }
}
