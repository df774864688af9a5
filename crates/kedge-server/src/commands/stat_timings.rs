//! The group `stat-timings`: how long the groups of statistics took.

use std::collections::BTreeMap;

use kedge_bucket::TimingSnapshot;
use parking_lot::Mutex;

use super::stat::Each;
use crate::histogram::{self, Style};

/// Powers of two of microseconds that are told apart, up to 9 minutes.
const BUCKETS: usize = 30;

/// How often a group took from 2^(n-1) us on and less than 2^n us; the first counts 0.
type Counts = [u64; BUCKETS];

/// How long groups took, by name.
#[derive(Debug, Default)]
pub(crate) struct StatTimings(Mutex<BTreeMap<&'static str, Counts>>);

impl StatTimings {
    pub(super) fn record_us(&self, group: &'static str, us: u64) {
        let bucket = (u64::BITS - us.leading_zeros()) as usize;
        let mut groups = self.0.lock();
        let counts = groups.entry(group).or_insert([0; BUCKETS]);
        counts[bucket.min(BUCKETS - 1)] += 1;
    }

    pub(super) fn reset(&self) {
        self.0.lock().clear();
    }

    /// `stat-timings`: a histogram for each group that was asked for.
    pub(super) fn show(&self, style: Style, each: Each<'_>) {
        let groups = self.0.lock().clone();
        for (name, counts) in groups {
            histogram::tell(style, &format!("stat:{name}"), &snapshot(&counts), each);
        }
    }
}

fn snapshot(counts: &Counts) -> TimingSnapshot {
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
    fn times_are_counted_by_powers_of_two() {
        let timings = StatTimings::default();
        for us in [0, 1, 2, 3, 4, 1_000, u64::MAX] {
            timings.record_us("hash", us);
        }
        timings.record_us("config", 5);
        let mut shown = Vec::new();
        timings.show(Style::Json, &mut |name, json| {
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
        ];
        assert_eq!(shown, expected);
        timings.reset();
        timings.show(Style::Json, &mut |name, _| panic!("{name}"));
    }
}
