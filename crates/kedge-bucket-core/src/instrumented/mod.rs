//! Statistics of a bucket's disk operations: times, operations in flight, failures.
//!
//! An [`InstrumentedDisk`] observes reads and writes, and changes nothing about them. To observe one takes two reads of the
//! clock and no lock.

mod disk;

pub use disk::InstrumentedDisk;

use crate::timings::{Timing, Timings};
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
    failed: AtomicU64,
}

impl Default for IoKind {
    fn default() -> Self {
        Self {
            began: (0..SLOTS).map(|_| AtomicU64::new(FREE)).collect(),
            next: AtomicUsize::new(0),
            pending: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }
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

    fn end(&self, slot: Option<usize>, ok: bool) {
        if let Some(slot) = slot {
            self.began[slot].store(FREE, Ordering::Relaxed);
        }
        self.pending.fetch_sub(1, Ordering::Relaxed);
        if !ok {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
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
            let took_us = (self.io_stats.now_ns() - self.began_ns) / 1_000;
            self.io_stats.count(Io::Read(bytes), took_us);
        }
    }
}

impl Drop for StartedRead {
    fn drop(&mut self) {
        self.io_stats.reads.end(self.slot, !self.failed);
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
    fn observe<R, E>(
        &self,
        io: Io,
        timed: bool,
        operation: impl FnOnce() -> Result<R, E>,
    ) -> Result<R, E> {
        let kind = match io {
            Io::Read(_) => &self.reads,
            Io::Write(_) | Io::Sync => &self.writes,
        };
        let began_ns = self.now_ns();
        let slot = kind.begin(began_ns);
        let result = operation();
        kind.end(slot, result.is_ok());
        if timed {
            let took_us = (self.now_ns() - began_ns) / 1_000;
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

    /// Returns the number of writes and syncs that failed.
    #[must_use]
    pub fn failed_writes(&self) -> u64 {
        self.writes.failed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_beyond_the_slots_are_counted_and_slots_are_reused() {
        let kind = IoKind::default();
        for round in 0..3 {
            let slots: Vec<_> = (0..SLOTS as u64).map(|n| kind.begin(n)).collect();
            assert!(slots.iter().all(Option::is_some), "{round}");
            let beyond = kind.begin(0);
            assert_eq!(beyond, None);
            assert_eq!(kind.pending(9), (SLOTS as u64 + 1, 10));
            kind.end(beyond, true);
            slots.into_iter().for_each(|slot| kind.end(slot, round > 0));
            assert_eq!(kind.pending(u64::MAX), (0, 0));
        }
        assert_eq!(kind.failed.load(Ordering::Relaxed), SLOTS as u64);
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
            let done: Result<u8, ()> = io_stats.observe(io, timed, || Ok(7));
            assert_eq!(done, Ok(7));
            assert_eq!(all(), expected, "{io:?}");
        }
        let sizes = |timing: Timing| timings.snapshot(timing.name()).unwrap().buckets;
        assert_eq!(sizes(Timing::FsReadSize), [(8, 8, 1)]);
        let (low, high, _) = sizes(Timing::FsWriteSize)[0];
        assert!(low <= 700 && 700 <= high);
        let failed = io_stats.observe(Io::Sync, true, || Err::<(), _>("no"));
        assert_eq!(failed, Err("no"));
        assert_eq!(io_stats.writes.failed.load(Ordering::Relaxed), 1);
        assert_eq!(io_stats.reads.failed.load(Ordering::Relaxed), 0);
    }
}
