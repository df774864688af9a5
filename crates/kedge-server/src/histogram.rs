//! A histogram as JSON text, in the shape in which tools of this kind of server (`mctimings`) read one.

use kedge_bucket::{Bucket, Timing, TimingSnapshot};
use serde_json::{Value, json};

/// `{"total","bucketsLow","data":[[upper bound, count, cumulative percent],...]}`, bounds in microseconds (or whatever
/// the histogram counts). `bucketsLow` is the lowest value that the first bucket may hold.
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

/// Gives a histogram of a bucket to `each`, unless it is empty.
pub(crate) fn show(bucket: &Bucket, name: &str, timing: Timing, each: &mut dyn FnMut(&str, &str)) {
    let snapshot = bucket.timings().snapshot(timing.name());
    if let Some(snapshot) = snapshot.filter(|snapshot| snapshot.count > 0) {
        each(name, &to_json(&snapshot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
