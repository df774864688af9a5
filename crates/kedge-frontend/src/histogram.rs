//! Histograms in the two formats that tools read: JSON text (`mctimings`), or a line for each range of values
//! (`cbstats`).

use kedge_bucket::{Bucket, Timing, TimingSnapshot};
use serde_json::{Value, json};

/// Formats a histogram as `{"total","bucketsLow","data":[[upper bound, count, cumulative percent],...]}`, with bounds
/// in microseconds, or in the unit of the histogram. `bucketsLow` is the lowest value that the first bucket may hold.
pub(crate) fn to_json(snapshot: &TimingSnapshot) -> String {
    let low = snapshot.buckets.first().map_or(0, |(low, _, _)| *low);
    let mut seen = 0;
    let data: Vec<Value> = snapshot
        .buckets
        .iter()
        .map(|(_, high, count)| {
            seen += count;
            let percent = seen as f64 * 100.0 / snapshot.count as f64;
            json!([high, count, percent])
        })
        .collect();
    json!({
        "total": snapshot.count,
        "bucketsLow": low,
        "data": data,
        "overflowed": 0,
        "overflowed_sum": 0,
        "max_trackable": 0,
    })
    .to_string()
}

/// The format of histograms that a client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HistogramFormat {
    /// One JSON value, see [`to_json`].
    Json,
    /// A line `NAME_LOW,HIGH` for each range with values, from LOW on and less than HIGH, with their number.
    Lines,
}

/// Gives a histogram to `each`, unless it is empty.
pub(crate) fn tell(
    style: HistogramFormat,
    name: &str,
    snapshot: &TimingSnapshot,
    each: &mut dyn FnMut(&str, &str),
) {
    match style {
        _ if snapshot.count == 0 => {}
        HistogramFormat::Json => each(name, &to_json(snapshot)),
        HistogramFormat::Lines => {
            for (low, high, count) in &snapshot.buckets {
                let end = high.saturating_add(1);
                each(&format!("{name}_{low},{end}"), &count.to_string());
            }
        }
    }
}

/// Gives a histogram of a bucket to `each` as JSON, unless it is empty.
pub(crate) fn show(bucket: &Bucket, name: &str, timing: Timing, each: &mut dyn FnMut(&str, &str)) {
    show_in(HistogramFormat::Json, bucket, name, timing, each);
}

/// As [`show`], in either format.
pub(crate) fn show_in(
    style: HistogramFormat,
    bucket: &Bucket,
    name: &str,
    timing: Timing,
    each: &mut dyn FnMut(&str, &str),
) {
    if let Some(snapshot) = bucket.timings().snapshot(timing.name()) {
        tell(style, name, &snapshot, each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_lines_exclude_their_upper_bound() {
        let snapshot = TimingSnapshot {
            count: 4,
            buckets: vec![(2, 2, 1), (10, 11, 3)],
        };
        let mut lines = Vec::new();
        tell(
            HistogramFormat::Lines,
            "a_b",
            &snapshot,
            &mut |name, value| {
                lines.push(format!("{name} = {value}"));
            },
        );
        assert_eq!(lines, ["a_b_2,3 = 1", "a_b_10,12 = 3"]);
        tell(
            HistogramFormat::Lines,
            "a",
            &TimingSnapshot::default(),
            &mut |name, _| panic!("{name}"),
        );
    }

    #[test]
    fn percents_add_up() {
        let snapshot = TimingSnapshot {
            count: 4,
            buckets: vec![(2, 2, 1), (10, 11, 3)],
        };
        let text = to_json(&snapshot);
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["total"], 4);
        assert_eq!(json["bucketsLow"], 2);
        assert_eq!(json["data"], json!([[2, 1, 25.0], [11, 3, 100.0]]));
        assert!(to_json(&TimingSnapshot::default()).contains("\"data\":[]"));
    }
}
