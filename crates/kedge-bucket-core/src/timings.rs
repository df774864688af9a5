//! Histograms of times and sizes.

use histogram::AtomicHistogram;

/// 32 steps for every power of two: a value is known to about 3 %.
const GROUPING_POWER: u8 = 5;
/// Values up to 2^36 us, about 19 hours.
const MAX_VALUE_POWER: u8 = 36;

/// The unit of the values in a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimingUnit {
    /// A time.
    Microseconds,
    /// A size.
    Bytes,
    /// A number of things.
    Count,
}

macro_rules! timings {
    (@unit) => { TimingUnit::Microseconds };
    (@unit $unit:ident) => { TimingUnit::$unit };
    ($($(#[$doc:meta])* $name:ident = $text:literal $(in $unit:ident)?,)*) => {
        /// Histograms of a bucket, in microseconds unless they name another unit.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Timing {
            $($(#[$doc])* $name,)*
        }

        impl Timing {
            /// All histograms.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns its name, as `kedge timings` takes it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// Returns its unit.
            #[must_use]
            pub const fn unit(self) -> TimingUnit {
                match self {
                    $(Self::$name => timings!(@unit $($unit)?),)*
                }
            }
        }
    };
}

timings! {
    /// GET and its relatives.
    Get = "get",
    /// SET, ADD, REPLACE, APPEND, PREPEND.
    Set = "set",
    /// DELETE.
    Delete = "delete",
    /// INCREMENT, DECREMENT.
    Arithmetic = "arithmetic",
    /// TOUCH, GAT.
    Touch = "touch",
    /// GET_LOCKED, UNLOCK.
    Lock = "lock",
    /// GET_META.
    GetMeta = "get_meta",
    /// SET_WITH_META, ADD_WITH_META.
    SetWithMeta = "set_with_meta",
    /// DEL_WITH_META.
    DeleteWithMeta = "del_with_meta",
    /// SUBDOC_GET, SUBDOC_EXISTS, SUBDOC_GET_COUNT, SUBDOC_MULTI_LOOKUP.
    SubdocLookup = "subdoc_lookup",
    /// All other sub-document commands.
    SubdocMutation = "subdoc_mutation",
    /// Reading or changing paths of a document that was in memory.
    SubdocExecute = "subdoc_execute",
    /// JSON validation of a value of 4 KiB or more that a client sent.
    JsonValidate = "json_validate",
    /// Inflation of a value that a client sent compressed, with 4 KiB or more.
    SnappyDecompress = "snappy_decompress",
    /// RANGE_SCAN_CREATE.
    RangeScanCreate = "range_scan_create",
    /// RANGE_SCAN_CONTINUE, with all parts of its response.
    RangeScanContinue = "range_scan_continue",
    /// STAT.
    Stat = "stat",
    /// From the prepare to the commit of a SyncWrite.
    SyncWriteMajority = "sync_write_commit_majority",
    /// From the prepare to the commit of a SyncWrite.
    SyncWriteMajorityAndPersistToActive = "sync_write_commit_majority_and_persist_to_active",
    /// From the prepare to the commit of a SyncWrite.
    SyncWritePersistToMajority = "sync_write_commit_persist_to_majority",
    /// Write and sync of one batch of the log.
    LogSync = "log_sync",
    /// Changes in one batch of the log.
    LogBatchItems = "log_batch_items" in Count,
    /// Commits of a vBucket's file that share their two syncs, one or more, with these and the pauses within them.
    ApplyCommit = "apply_commit",
    /// Documents in one commit of a vBucket's file.
    ApplyBatchItems = "apply_batch_items" in Count,
    /// One compaction of a vBucket's file, from its beginning to its end.
    Compaction = "compaction",
    /// Time that commits of the file had to wait for its compaction.
    CompactionLock = "compaction_lock",
    /// Time that a command waited for the read of its document to begin.
    BgWait = "bg_wait",
    /// Time of the read of the file.
    BgLoad = "bg_load",
    /// Documents of one read of a file.
    BgBatchSize = "bg_batch_size" in Count,
    /// One read of a vBucket's file.
    FsRead = "fs_read_time",
    /// Bytes of one read.
    FsReadSize = "fs_read_size" in Bytes,
    /// One write to a vBucket's file.
    FsWrite = "fs_write_time",
    /// Bytes of one write.
    FsWriteSize = "fs_write_size" in Bytes,
    /// One sync of a vBucket's file, or of their directory.
    FsSync = "fs_sync_time",
    /// Time that a write waited for memory.
    MemoryWait = "memory_wait",
    /// A slice of the item pager's work.
    ItemPager = "item_pager",
    /// A chunk of the item compressor's work.
    ItemCompressor = "item_compressor",
    /// A chunk of the defragmenter's work.
    Defragmenter = "defragmenter",
    /// Time from the first change in a vBucket's queue to its commit on disk.
    StorageAge = "storage_age",
}

/// A histogram at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimingSnapshot {
    /// Number of values.
    pub count: u64,
    /// Lowest value, highest value (both included), and number of values of each bucket that is not empty.
    pub buckets: Vec<(u64, u64, u64)>,
}

/// The histograms of a bucket, striped by thread. Stripe `threads` is for all other threads.
#[derive(Debug)]
pub struct Timings {
    stripes: Box<[Box<[AtomicHistogram]>]>,
}

impl Timings {
    /// Returns empty histograms, with a stripe for each front-end thread.
    pub fn new(threads: u16) -> Self {
        let histogram = || {
            AtomicHistogram::new(GROUPING_POWER, MAX_VALUE_POWER)
                .expect("the constants fit each other")
        };
        let stripe = || Timing::ALL.iter().map(|_| histogram()).collect();
        Self {
            stripes: (0..=threads).map(|_| stripe()).collect(),
        }
    }

    /// Counts one value on behalf of front-end thread `thread`.
    pub fn record_us(&self, thread: u16, timing: Timing, us: u64) {
        let stripe = self
            .stripes
            .get(usize::from(thread))
            .unwrap_or(&self.stripes[self.stripes.len() - 1]);
        let us = us.min((1 << MAX_VALUE_POWER) - 1);
        // The value fits, so the histogram takes it.
        let _ = stripe[timing as usize].increment(us);
    }

    /// Returns the histogram of that name, summed over the threads.
    #[must_use]
    pub fn snapshot(&self, name: &str) -> Option<TimingSnapshot> {
        let timing = *Timing::ALL.iter().find(|timing| timing.name() == name)?;
        Some(self.snapshot_of(timing))
    }

    /// Returns a histogram, summed over the threads.
    #[must_use]
    pub fn snapshot_of(&self, timing: Timing) -> TimingSnapshot {
        let mut sum: Vec<(u64, u64, u64)> = Vec::new();
        for stripe in &self.stripes {
            let loaded = stripe[timing as usize].load();
            for (index, bucket) in loaded.iter().enumerate() {
                if sum.len() <= index {
                    sum.push((bucket.start(), bucket.end(), 0));
                }
                sum[index].2 += bucket.count();
            }
        }
        sum.retain(|(_, _, count)| *count > 0);
        TimingSnapshot {
            count: sum.iter().map(|(_, _, count)| count).sum(),
            buckets: sum,
        }
    }

    /// Removes all values.
    pub fn reset(&self) {
        for histogram in self.stripes.iter().flat_map(|stripe| stripe.iter()) {
            histogram.drain();
        }
    }
}

impl TimingSnapshot {
    /// Returns the values since an earlier snapshot of the same histogram. If the histogram was reset in between, these are
    /// some of the values since then.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut before = earlier.buckets.iter().peekable();
        let mut buckets = Vec::new();
        for &(low, high, count) in &self.buckets {
            while before.next_if(|(other, ..)| *other < low).is_some() {}
            let known = before.next_if(|(other, ..)| *other == low);
            let count = count.saturating_sub(known.map_or(0, |(.., count)| *count));
            if count > 0 {
                buckets.push((low, high, count));
            }
        }
        Self {
            count: buckets.iter().map(|(.., count)| count).sum(),
            buckets,
        }
    }

    /// Returns the value at or below which `percentile` (0 to 100) percent of all values lie; 0 when there are none.
    #[must_use]
    pub fn percentile(&self, percentile: f64) -> u64 {
        let rank = (self.count as f64 * percentile / 100.0).ceil() as u64;
        let mut seen = 0;
        for (_, high, count) in &self.buckets {
            seen += count;
            if seen >= rank.max(1) {
                return *high;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_sums_stripes_and_reset_empties_them() {
        let timings = Timings::new(2);
        for (thread, us) in [(0, 10), (1, 10), (2, 1_000), (9, u64::MAX)] {
            timings.record_us(thread, Timing::Get, us);
        }
        let snapshot = timings.snapshot("get").unwrap();
        assert_eq!(snapshot.count, 4);
        assert_eq!(snapshot.buckets[0], (10, 10, 2));
        assert_eq!(snapshot.percentile(50.0), 10);
        let high = snapshot.percentile(75.0);
        assert!((1_000..1_040).contains(&high), "{high}");
        assert_eq!(timings.snapshot("no such"), None);
        timings.reset();
        assert_eq!(timings.snapshot("get").unwrap().count, 0);
    }

    #[test]
    fn snapshot_has_the_values_since_an_earlier_one() {
        let timings = Timings::new(0);
        let record = |values: &[u64]| {
            for us in values {
                timings.record_us(0, Timing::BgLoad, *us);
            }
            timings.snapshot_of(Timing::BgLoad)
        };
        let first = record(&[10, 10, 20]);
        let second = record(&[5, 10, 30]);
        assert_eq!(
            second.since(&first).buckets,
            [(5, 5, 1), (10, 10, 1), (30, 30, 1)]
        );
        assert_eq!(second.since(&second), TimingSnapshot::default());
        timings.reset();
        assert_eq!(record(&[10]).since(&second), TimingSnapshot::default());
        assert_eq!(record(&[40]).since(&second).buckets, [(40, 40, 1)]);
    }
}
