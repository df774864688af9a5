//! The number of threads of a pool.

use crate::kind::Pool;
use std::num::NonZero;
use std::thread::available_parallelism;

/// Largest number of threads of a pool.
pub const MAX_THREADS: usize = 128;

/// The number of threads of a pool, fixed or derived from the number of cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThreadCount {
    /// Derived from the number of cores: Reader one per core (4 to 16), Writer 4, AuxIo two per core (2 to 128), NonIo
    /// a third of the cores (2 to 8).
    #[default]
    Balanced,
    /// For disks that serve many requests at once: Reader and Writer two per core, 4 to 128. The other pools are as
    /// with `Balanced`.
    DiskIoOptimized,
    /// A fixed number, 1 to [`MAX_THREADS`].
    Fixed(usize),
}

impl ThreadCount {
    /// Returns the number of threads of `pool` on a machine with `cores` cores.
    #[must_use]
    pub fn count(self, pool: Pool, cores: usize) -> usize {
        match (self, pool) {
            (Self::Fixed(count), _) => count.clamp(1, MAX_THREADS),
            (Self::DiskIoOptimized, Pool::Reader | Pool::Writer) => {
                (2 * cores).clamp(4, MAX_THREADS)
            }
            (_, Pool::Reader) => cores.clamp(4, 16),
            (_, Pool::Writer) => 4,
            (_, Pool::AuxIo) => (2 * cores).clamp(2, MAX_THREADS),
            (_, Pool::NonIo) => (cores.saturating_mul(3) / 10).clamp(2, 8),
        }
    }
}

/// Returns the number of cores that this process may use.
pub(crate) fn cores() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_counts_are_derived_from_cores() {
        let counts = |threads: ThreadCount, cores| Pool::ALL.map(|pool| threads.count(pool, cores));
        assert_eq!(counts(ThreadCount::Balanced, 1), [4, 4, 2, 2]);
        assert_eq!(counts(ThreadCount::Balanced, 12), [12, 4, 24, 3]);
        assert_eq!(counts(ThreadCount::Balanced, 100), [16, 4, 128, 8]);
        assert_eq!(counts(ThreadCount::DiskIoOptimized, 2), [4, 4, 4, 2]);
        assert_eq!(counts(ThreadCount::DiskIoOptimized, 12), [24, 24, 24, 3]);
        assert_eq!(counts(ThreadCount::Fixed(3), 12), [3; 4]);
        assert_eq!(counts(ThreadCount::Fixed(0), 12), [1; 4]);
        assert_eq!(counts(ThreadCount::Fixed(1_000), 12), [MAX_THREADS; 4]);
    }
}
