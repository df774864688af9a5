//! `kedge bucket show` and `kedge bucket list`: the management's documents as tables.

use kedge_bucket::BucketConfig;
use serde_json::Value;

use crate::tools::table::table;

/// A row: its name, and its text from the document.
type ShowRow = (&'static str, fn(&Value) -> Option<String>);

/// Rows that are no settings with a field of their own, or that the document has in another form.
const BEFORE: [ShowRow; 9] = [
    ("name", |it| text(it, "/name")),
    ("uuid", |it| text(it, "/uuid")),
    ("items", |it| text(it, "/basicStats/itemCount")),
    ("memory_used", |it| mib(it, "/basicStats/memUsed")),
    ("disk_used", |it| mib(it, "/basicStats/diskUsed")),
    ("quota", |it| mib(it, "/quota/rawRAM")),
    ("vbuckets", |it| text(it, "/numVBuckets")),
    ("flush_enabled", |it| Some(may_flush(it).to_string())),
    ("conflict_resolution", |it| {
        text(it, "/conflictResolutionType")
    }),
];

/// Returns the table of one bucket, with a row for each setting and figure of the server.
pub(super) fn one(bucket: &Value) -> String {
    let before = BEFORE
        .iter()
        .filter_map(|(name, of)| Some((*name, of(bucket)?)));
    let settings = BucketConfig::table().filter_map(|row| {
        let shown = text(bucket, &format!("/{}", row.field.as_ref()?.name))?;
        match row.name {
            "max_ttl" if shown == "0" => Some((row.name, "no limit".to_owned())),
            "max_ttl" => Some((row.name, format!("{shown} s"))),
            name => Some((name, shown)),
        }
    });
    let compaction = compaction(bucket).map(|it| ("compaction", it));
    let rows: Vec<Vec<String>> = before
        .chain(settings)
        .chain(compaction)
        .map(|(name, shown)| vec![name.to_owned(), shown])
        .collect();
    table("ll", &rows)
}

fn text(bucket: &Value, pointer: &str) -> Option<String> {
    match bucket.pointer(pointer)? {
        Value::String(text) => Some(text.clone()),
        Value::Null => None,
        other => Some(other.to_string()),
    }
}

fn mib(bucket: &Value, pointer: &str) -> Option<String> {
    let bytes = bucket.pointer(pointer)?.as_f64()?;
    Some(format!("{:.1} MiB", bytes / f64::from(1 << 20)))
}

fn may_flush(bucket: &Value) -> bool {
    bucket.pointer("/controllers/flush").is_some()
}

/// Returns the bucket's own compaction settings.
fn compaction(bucket: &Value) -> Option<String> {
    let threshold = "/autoCompactionSettings/databaseFragmentationThreshold/percentage";
    let Some(percentage) = bucket.pointer(threshold) else {
        return Some("as by default".to_owned());
    };
    let days = bucket.pointer("/purgeInterval")?.as_f64()?;
    let percent = percentage.as_u64().map(|it| format!("{it} % garbage"));
    let size = "/autoCompactionSettings/databaseFragmentationThreshold/size";
    let size = bucket.pointer(size).and_then(Value::as_u64);
    let size = size.map(|bytes| format!("{bytes} bytes of garbage in all"));
    let marks: Vec<String> = percent.into_iter().chain(size).collect();
    let when = match marks.as_slice() {
        [] => "not by itself".to_owned(),
        marks => format!("at {}", marks.join(" or ")),
    };
    let hours = hours(bucket).map_or_else(String::new, |it| format!(", {it}"));
    Some(format!("{when}{hours}, tombstones are kept {days} days"))
}

/// Returns the time of the day at which files are compacted, if it is limited.
fn hours(bucket: &Value) -> Option<String> {
    let period = bucket.pointer("/autoCompactionSettings/allowedTimePeriod")?;
    let number = |field: &str| period.get(field).and_then(Value::as_u64);
    let time = |hour, minute| Some(format!("{:02}:{:02}", number(hour)?, number(minute)?));
    let from = time("fromHour", "fromMinute")?;
    let to = time("toHour", "toMinute")?;
    let aborts = period.get("abortOutside") == Some(&Value::Bool(true));
    let and = if aborts { " and no longer" } else { "" };
    Some(format!("from {from} to {to} UTC{and}"))
}

/// Returns the table of all buckets, with a row for each.
pub(super) fn all(list: &Value) -> String {
    let mut rows = vec![
        [
            "NAME",
            "ITEMS",
            "USED MIB",
            "QUOTA MIB",
            "VBUCKETS",
            "REPLICAS",
            "FLUSH",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for bucket in list.as_array().into_iter().flatten() {
        let number = |pointer: &str| bucket.pointer(pointer).and_then(Value::as_f64);
        let text = |pointer: &str| {
            number(pointer).map_or_else(|| "-".to_owned(), |number| format!("{number:.0}"))
        };
        let mib = |pointer: &str| {
            let bytes = number(pointer);
            bytes.map_or_else(
                || "-".to_owned(),
                |it| format!("{:.1}", it / f64::from(1 << 20)),
            )
        };
        rows.push(vec![
            bucket
                .get("name")
                .and_then(Value::as_str)
                .unwrap_or("?")
                .to_owned(),
            text("/basicStats/itemCount"),
            mib("/basicStats/memUsed"),
            mib("/quota/rawRAM"),
            text("/numVBuckets"),
            text("/replicaNumber"),
            if may_flush(bucket) { "yes" } else { "no" }.to_owned(),
        ]);
    }
    table("lrrrrr", &rows)
}

/// Returns the directories that are not served, a line for each.
pub(super) fn unserved(list: &Value) -> String {
    let text = |it: &Value, field: &str| it.get(field).and_then(Value::as_str).map(str::to_owned);
    let line = |it: &Value| {
        Some(format!(
            "not served: {} ({}): {}; {}\n",
            text(it, "name")?,
            text(it, "path")?,
            text(it, "why")?,
            text(it, "remedy")?
        ))
    };
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(line)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_list_is_a_table() {
        let list = serde_json::json!([{
            "name": "default", "numVBuckets": 1024, "replicaNumber": 0,
            "quota": {"rawRAM": 104_857_600}, "controllers": {"flush": "/x"},
            "basicStats": {"itemCount": 7, "memUsed": 1_572_864},
        }, {"name": "b"}]);
        assert_eq!(
            all(&list),
            "NAME     ITEMS  USED MIB  QUOTA MIB  VBUCKETS  REPLICAS  FLUSH\n\
             default      7       1.5      100.0      1024         0  yes\n\
             b            -         -          -         -         -  no\n"
        );
    }

    #[test]
    fn directories_that_are_not_served_are_listed() {
        let list = serde_json::json!([{
            "name": "b", "path": "/data/buckets/b", "why": "its bucket.json is missing",
            "remedy": "serve it with: kedge bucket adopt b",
        }, {}]);
        assert_eq!(
            unserved(&list),
            "not served: b (/data/buckets/b): its bucket.json is missing; serve it with: kedge bucket adopt b\n"
        );
        assert_eq!(unserved(&Value::Null), "");
    }

    #[test]
    fn bucket_show_has_a_row_for_each_setting() {
        let bucket = serde_json::json!({
            "name": "default", "numVBuckets": 1024, "replicaNumber": 1, "maxTTL": 60,
            "quota": {"ram": 209_715_200, "rawRAM": 104_857_600}, "evictionPolicy": "valueOnly",
            "minCompressionRatio": 1.2, "accessScannerEnabled": true, "purgeInterval": 1.5,
            "autoCompactionSettings": {"databaseFragmentationThreshold": {"percentage": 47}},
        });
        assert_eq!(
            one(&bucket),
            "name                    default\n\
             quota                   100.0 MiB\n\
             vbuckets                1024\n\
             flush_enabled           false\n\
             min_compression_ratio   1.2\n\
             max_ttl                 60 s\n\
             replicas                1\n\
             eviction_policy         valueOnly\n\
             access_scanner_enabled  true\n\
             compaction              at 47 % garbage, tombstones are kept 1.5 days\n"
        );
        let never = serde_json::json!({
            "autoCompactionSettings": {"databaseFragmentationThreshold": {"percentage": "undefined"}},
            "purgeInterval": 3.0,
        });
        let said = "not by itself, tombstones are kept 3 days";
        assert_eq!(compaction(&never).as_deref(), Some(said));
        let hours = serde_json::json!({
            "autoCompactionSettings": {
                "databaseFragmentationThreshold": {"percentage": 30, "size": 9},
                "allowedTimePeriod": {
                    "fromHour": 22, "fromMinute": 0, "toHour": 5, "toMinute": 30, "abortOutside": true,
                },
            },
            "purgeInterval": 3.0,
        });
        let said = "at 30 % garbage or 9 bytes of garbage in all, from 22:00 to 05:30 UTC and no longer, tombstones are kept 3 days";
        assert_eq!(compaction(&hours).as_deref(), Some(said));
        let default = serde_json::json!({"autoCompactionSettings": false});
        assert_eq!(compaction(&default).as_deref(), Some("as by default"));
    }
}
