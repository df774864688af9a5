//! The group `stat-timings`: durations of the groups of statistics.

use std::collections::BTreeMap;
use std::fmt;

use kedge_bucket::TimingSnapshot;
use kedge_sync::{RankedMutex, ranks::StatTimes};

use crate::histogram::{self, HistogramFormat};
use crate::stat_generator::AddStat;

/// Number of buckets, powers of two of microseconds up to 9 minutes.
const BUCKETS: usize = 30;

/// Counts of a group's executions that took from 2^(n-1) us on and less than 2^n us; the first counts 0.
type HistogramCounts = [u64; BUCKETS];

/// The name of a group's histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimedGroup {
    pub(crate) name: &'static str,
    /// True if an argument restricted the group, for example to one vBucket.
    pub(crate) single: bool,
}

impl fmt::Display for TimedGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, single } = self;
        write!(f, "{name}{}", if *single { ".single" } else { "" })
    }
}

/// Durations of groups, those with an argument apart.
#[derive(Debug, Default)]
pub(crate) struct StatTimings(RankedMutex<StatTimes, BTreeMap<TimedGroup, HistogramCounts>>);

impl StatTimings {
    pub(crate) fn record_us(&self, group: TimedGroup, us: u64) {
        let bucket = (u64::BITS - us.leading_zeros()) as usize;
        let mut groups = self.0.lock();
        let counts = groups.entry(group).or_insert([0; BUCKETS]);
        counts[bucket.min(BUCKETS - 1)] += 1;
    }

    pub(crate) fn reset(&self) {
        self.0.lock().clear();
    }

    /// `stat-timings`: a histogram for each group that was requested.
    pub(crate) fn show(&self, style: HistogramFormat, each: AddStat<'_>) {
        let groups = self.0.lock().clone();
        for (group, counts) in groups {
            histogram::tell(style, &format!("stat:{group}"), &snapshot(&counts), each);
        }
    }
}

fn snapshot(counts: &HistogramCounts) -> TimingSnapshot {
    let bounds = (0..BUCKETS).map(|n| match n {
        0 => (0, 0),
        n => (1 << (n - 1), (1 << n) - 1),
    });
    let buckets = bounds.zip(counts).filter(|(_, count)| **count > 0);
    TimingSnapshot {
        count: counts.iter().sum(),
        buckets: buckets
            .map(|((low, high), count)| (low, high, *count))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn durations_are_counted_by_powers_of_two() {
        let timings = StatTimings::default();
        let group = |name, single| TimedGroup { name, single };
        for us in [0, 1, 2, 3, 4, 1_000, u64::MAX] {
            timings.record_us(group("hash", false), us);
        }
        timings.record_us(group("config", false), 5);
        timings.record_us(group("hash", true), 5);
        let mut shown = Vec::new();
        timings.show(HistogramFormat::Json, &mut |name, json| {
            let json: Value = serde_json::from_str(json).unwrap();
            let rows = json["data"].as_array().unwrap();
            let row = |row: &Value| (row[0].as_u64().unwrap(), row[1].as_u64().unwrap());
            let rows: Vec<_> = rows.iter().map(row).collect();
            shown.push((name.to_owned(), rows));
        });
        let last = (1 << (BUCKETS - 1)) - 1;
        let hash = vec![(0, 1), (1, 1), (3, 2), (7, 1), (1_023, 1), (last, 1)];
        let expected = [
            ("stat:config".to_owned(), vec![(7, 1)]),
            ("stat:hash".to_owned(), hash),
            ("stat:hash.single".to_owned(), vec![(7, 1)]),
        ];
        assert_eq!(shown, expected);
        timings.reset();
        timings.show(HistogramFormat::Json, &mut |name, _| panic!("{name}"));
    }
}
