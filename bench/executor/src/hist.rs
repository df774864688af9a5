//! The statistics per kind of task that both re-created pools keep: queue times and run times.

use std::sync::atomic::{AtomicU64, Ordering};

/// Two buckets per power of two of nanoseconds.
const BUCKETS: usize = 128;

/// A histogram that any thread adds to without a lock.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }
}

impl Histogram {
    /// Counts one value.
    pub fn record(&self, nanoseconds: u64) {
        self.buckets[bucket(nanoseconds)].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of counted values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets
            .iter()
            .map(|bucket| bucket.load(Ordering::Relaxed))
            .sum()
    }
}

fn bucket(nanoseconds: u64) -> usize {
    let power = 63 - (nanoseconds | 1).leading_zeros();
    let upper_half = if power == 0 {
        0
    } else {
        (nanoseconds >> (power - 1)) & 1
    };
    2 * power as usize + upper_half as usize
}

/// The two histograms of a kind.
#[derive(Debug, Default)]
pub struct KindStats {
    /// The time from the wake time of a task to the start of its run.
    pub queue_time: Histogram,
    /// The time from start to end of a run.
    pub run_time: Histogram,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_buckets_rise_and_stay_in_range() {
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(2), 2);
        assert_eq!(bucket(3), 3);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert!((1..2000).all(|value| bucket(value) <= bucket(value + 1)));
    }
}
