//! Statistics of a bucket's disk operations: times, operations in flight, failures.
//!
//! An [`InstrumentedDisk`] observes reads and writes, and changes nothing about them. To observe one takes two reads of the
//! clock and no lock.

mod disk;

pub use disk::InstrumentedDisk;

use crate::timings::{Timing, Timings};
use kedge_disk::DiskError;
use kedge_types::limits::DISK_CALL_SLOW_MS;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Operations of a kind whose beginnings are known at the same time. There are fewer threads.
const SLOTS: usize = 256;
/// A slot without an operation.
const FREE: u64 = 0;

/// Operations of the disk that are in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingIo {
    /// Reads.
    pub reads: u64,
    /// Slow reads.
    pub slow_reads: u64,
    /// Writes and syncs.
    pub writes: u64,
    /// Slow writes and syncs.
    pub slow_writes: u64,
}

/// Counters of a disk's operations since the start, and the operations in flight, by which the disk is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCalls {
    /// Reads that have ended.
    pub reads: u64,
    /// Those that failed.
    pub failed_reads: u64,
    /// Writes and syncs that have ended.
    pub writes: u64,
    /// Those that failed, though the disk was not full.
    pub failed_writes: u64,
    /// Operations that took [`DISK_CALL_SLOW_MS`] or longer.
    pub slow: u64,
    /// Operations in flight that have taken as long already.
    pub slow_in_flight: u64,
    /// The age of the oldest operation in flight.
    pub oldest_in_flight: Duration,
}

/// An operation, with its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Io {
    Read(usize),
    Write(usize),
    Sync,
}

/// The operations of one kind.
#[derive(Debug)]
struct IoKind {
    /// The beginning of each, in nanoseconds, plus 1; [`FREE`] where there is none.
    began: Box<[AtomicU64]>,
    next: AtomicUsize,
    pending: AtomicU64,
    /// Operations that have ended.
    ended: AtomicU64,
    /// Those of them that took [`DISK_CALL_SLOW_MS`] or longer.
    slow: AtomicU64,
    failed: AtomicU64,
    /// Those of the failed ones that did not find the disk full.
    broken: AtomicU64,
}

impl Default for IoKind {
    fn default() -> Self {
        Self {
            began: (0..SLOTS).map(|_| AtomicU64::new(FREE)).collect(),
            next: AtomicUsize::new(0),
            pending: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            slow: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            broken: AtomicU64::new(0),
        }
    }
}

/// The end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Well,
    /// The disk is full.
    Full,
    Broken,
}

impl IoKind {
    /// Begins an operation. Returns its slot; `None` when all are taken.
    fn begin(&self, now_ns: u64) -> Option<usize> {
        self.pending.fetch_add(1, Ordering::Relaxed);
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let mut slots = (first..first.wrapping_add(SLOTS)).map(|slot| slot % SLOTS);
        slots.find(|slot| {
            let free = self.began[*slot].load(Ordering::Relaxed) == FREE;
            free && self.began[*slot]
                .compare_exchange(FREE, now_ns + 1, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        })
    }

    fn end(&self, slot: Option<usize>, ended: Ended, took_us: u64) {
        if let Some(slot) = slot {
            self.began[slot].store(FREE, Ordering::Relaxed);
        }
        self.pending.fetch_sub(1, Ordering::Relaxed);
        self.ended.fetch_add(1, Ordering::Relaxed);
        if took_us >= DISK_CALL_SLOW_MS * 1_000 {
            self.slow.fetch_add(1, Ordering::Relaxed);
        }
        if ended != Ended::Well {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        if ended == Ended::Broken {
            self.broken.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the age of the oldest operation in flight, in nanoseconds.
    fn oldest_ns(&self, now_ns: u64) -> u64 {
        let began = self.began.iter().map(|slot| slot.load(Ordering::Relaxed));
        let oldest = began.filter(|began| *began != FREE).min();
        oldest.map_or(0, |began| now_ns.saturating_sub(began - 1))
    }

    /// Returns the number of operations in flight, and of those that began no later than `latest_ns`.
    fn pending(&self, latest_ns: u64) -> (u64, u64) {
        let began = self.began.iter().map(|slot| slot.load(Ordering::Relaxed));
        let slow = began.filter(|began| *began != FREE && began - 1 <= latest_ns);
        let slow = slow.count() as u64;
        (self.pending.load(Ordering::Relaxed).max(slow), slow)
    }
}

/// A read that the caller does itself; one that is dropped was given up.
#[derive(Debug)]
pub struct StartedRead {
    io_stats: Arc<IoStatistics>,
    began_ns: u64,
    slot: Option<usize>,
    failed: bool,
}

impl StartedRead {
    /// Ends the read, with so many bytes; `None` if it failed.
    pub fn end(mut self, bytes: Option<usize>) {
        self.failed = bytes.is_none();
        if let Some(bytes) = bytes {
            let took_us = self.took_us();
            self.io_stats.count(Io::Read(bytes), took_us);
        }
    }

    fn took_us(&self) -> u64 {
        (self.io_stats.now_ns() - self.began_ns) / 1_000
    }
}

impl Drop for StartedRead {
    fn drop(&mut self) {
        let ended = match self.failed {
            true => Ended::Broken,
            false => Ended::Well,
        };
        self.io_stats.reads.end(self.slot, ended, self.took_us());
    }
}

/// Statistics of the operations of a bucket's disk.
#[derive(Debug)]
pub struct IoStatistics {
    origin: Instant,
    reads: IoKind,
    writes: IoKind,
    timings: Arc<Timings>,
}

impl IoStatistics {
    /// Returns statistics that are recorded into `timings`.
    pub fn new(timings: Arc<Timings>) -> Self {
        Self {
            origin: Instant::now(),
            reads: IoKind::default(),
            writes: IoKind::default(),
            timings,
        }
    }

    fn now_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// Does an operation. Its time and its bytes are recorded if `timed`.
    fn observe<R>(
        &self,
        io: Io,
        timed: bool,
        operation: impl FnOnce() -> Result<R, DiskError>,
    ) -> Result<R, DiskError> {
        let kind = match io {
            Io::Read(_) => &self.reads,
            Io::Write(_) | Io::Sync => &self.writes,
        };
        let began_ns = self.now_ns();
        let slot = kind.begin(began_ns);
        let result = operation();
        let ended = match &result {
            Ok(_) => Ended::Well,
            Err(error) if error.is_no_space() => Ended::Full,
            Err(_) => Ended::Broken,
        };
        let took_us = (self.now_ns() - began_ns) / 1_000;
        kind.end(slot, ended, took_us);
        if timed {
            self.count(io, took_us);
        }
        result
    }

    /// Begins a read that the caller does itself.
    pub fn begin_read(self: &Arc<Self>) -> StartedRead {
        let began_ns = self.now_ns();
        StartedRead {
            io_stats: Arc::clone(self),
            began_ns,
            slot: self.reads.begin(began_ns),
            failed: false,
        }
    }

    fn count(&self, io: Io, took_us: u64) {
        let record = |timing, value| self.timings.record_us(u16::MAX, timing, value);
        match io {
            Io::Read(bytes) => {
                record(Timing::FsRead, took_us);
                record(Timing::FsReadSize, bytes as u64);
            }
            Io::Write(bytes) => {
                record(Timing::FsWrite, took_us);
                record(Timing::FsWriteSize, bytes as u64);
            }
            Io::Sync => record(Timing::FsSync, took_us),
        }
    }
}

impl IoStatistics {
    /// Returns the reads, writes and syncs of the log and of files that are in flight; slow ones have taken `slow` or longer.
    #[must_use]
    pub fn pending_io(&self, slow: Duration) -> PendingIo {
        let slow_ns = u64::try_from(slow.as_nanos()).unwrap_or(u64::MAX);
        let Some(latest_ns) = self.now_ns().checked_sub(slow_ns) else {
            let all = |kind: &IoKind| kind.pending.load(Ordering::Relaxed);
            return PendingIo {
                reads: all(&self.reads),
                writes: all(&self.writes),
                ..PendingIo::default()
            };
        };
        let (reads, slow_reads) = self.reads.pending(latest_ns);
        let (writes, slow_writes) = self.writes.pending(latest_ns);
        PendingIo {
            reads,
            slow_reads,
            writes,
            slow_writes,
        }
    }

    /// Returns the counters by which the disk is judged.
    #[must_use]
    pub fn disk_calls(&self) -> DiskCalls {
        let slow = Duration::from_millis(DISK_CALL_SLOW_MS);
        let in_flight = self.pending_io(slow);
        let now_ns = self.now_ns();
        let oldest_ns = self
            .reads
            .oldest_ns(now_ns)
            .max(self.writes.oldest_ns(now_ns));
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DiskCalls {
            reads: read(&self.reads.ended),
            failed_reads: read(&self.reads.broken),
            writes: read(&self.writes.ended),
            failed_writes: read(&self.writes.broken),
            slow: read(&self.reads.slow) + read(&self.writes.slow),
            slow_in_flight: in_flight.slow_reads + in_flight.slow_writes,
            oldest_in_flight: Duration::from_nanos(oldest_ns),
        }
    }

    /// Returns the number of writes and syncs that failed.
    #[must_use]
    pub fn failed_writes(&self) -> u64 {
        self.writes.failed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kedge_disk::Operation;
    use std::io;
    use std::path::Path;

    #[test]
    fn operations_beyond_the_slots_are_counted_and_slots_are_reused() {
        let kind = IoKind::default();
        for round in 0..3 {
            let slots: Vec<_> = (0..SLOTS as u64).map(|n| kind.begin(n)).collect();
            assert!(slots.iter().all(Option::is_some), "{round}");
            let beyond = kind.begin(0);
            assert_eq!(beyond, None);
            assert_eq!(kind.pending(9), (SLOTS as u64 + 1, 10));
            assert_eq!(kind.oldest_ns(100), 100);
            kind.end(beyond, Ended::Well, 0);
            let ended = [Ended::Full, Ended::Broken, Ended::Well][round];
            slots.into_iter().for_each(|slot| kind.end(slot, ended, 0));
            assert_eq!(kind.pending(u64::MAX), (0, 0));
            assert_eq!(kind.oldest_ns(100), 0);
        }
        let slots = SLOTS as u64;
        assert_eq!(kind.failed.load(Ordering::Relaxed), 2 * slots);
        assert_eq!(kind.broken.load(Ordering::Relaxed), slots);
        assert_eq!(kind.ended.load(Ordering::Relaxed), 3 * (slots + 1));
    }

    #[test]
    fn operations_are_recorded_by_kind_if_timed() {
        let timings = Arc::new(Timings::new(1));
        let io_stats = IoStatistics::new(Arc::clone(&timings));
        let count = |timing: Timing| timings.snapshot(timing.name()).unwrap().count;
        let all = || [Timing::FsRead, Timing::FsWrite, Timing::FsSync].map(count);
        for (io, timed, expected) in [
            (Io::Read(8), true, [1, 0, 0]),
            (Io::Read(8), false, [1, 0, 0]),
            (Io::Write(700), true, [1, 1, 0]),
            (Io::Sync, true, [1, 1, 1]),
        ] {
            let done = io_stats.observe(io, timed, || Ok(7));
            assert_eq!(done.expect("it ends well"), 7);
            assert_eq!(all(), expected, "{io:?}");
        }
        let sizes = |timing: Timing| timings.snapshot(timing.name()).unwrap().buckets;
        assert_eq!(sizes(Timing::FsReadSize), [(8, 8, 1)]);
        let (low, high, _) = sizes(Timing::FsWriteSize)[0];
        assert!(low <= 700 && 700 <= high);
        // Full, device.
        for number in [28, 5] {
            let error = io::Error::from_raw_os_error(number);
            let error = DiskError::new(Operation::Write, Path::new("file"), error);
            let failed = io_stats.observe(Io::Write(1), true, || Err::<(), _>(error));
            failed.expect_err("it fails");
        }
        assert_eq!(io_stats.failed_writes(), 2);
        let expected = DiskCalls {
            reads: 2,
            writes: 4,
            failed_writes: 1,
            ..DiskCalls::default()
        };
        assert_eq!(io_stats.disk_calls(), expected);
    }
}
