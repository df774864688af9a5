//! The statistics per kind of task that both re-created pools keep: how long tasks queued and how long they ran.

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

    /// How many values were counted.
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
    /// From the time a task should have woken to the start of its run.
    pub queue_time: Histogram,
    /// From start to end of a run.
    pub run_time: Histogram,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_rise_with_the_value_and_stay_in_range() {
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(2), 2);
        assert_eq!(bucket(3), 3);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert!((1..2000).all(|value| bucket(value) <= bucket(value + 1)));
    }
}
