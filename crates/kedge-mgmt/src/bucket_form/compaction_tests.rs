//! Compaction by size, and at certain times of the day.

use kedge_bucket::{BucketConfig, CompactionHours};

use super::changed_bucket;
use crate::form::FormFields;

fn form(more: &str) -> FormFields {
    let own = "autoCompactionDefined=true&parallelDBAndViewCompaction=false";
    FormFields::parse(format!("{own}&{more}").as_bytes())
}

/// The fields of a time of the day.
fn period(fields: &[(&str, &str)]) -> String {
    let field = |(name, value): &(&str, &str)| format!("allowedTimePeriod[{name}]={value}");
    fields.iter().map(field).collect::<Vec<_>>().join("&")
}

#[test]
fn compaction_size_and_hours_need_all_their_fields() {
    let current = BucketConfig::new("b", 8, 100 << 20);
    let night = [
        ("fromHour", "22"),
        ("fromMinute", "0"),
        ("toHour", "5"),
        ("toMinute", "30"),
    ];
    let hours = |abort_outside| CompactionHours {
        from_minute: 22 * 60,
        to_minute: 5 * 60 + 30,
        abort_outside,
    };
    let with = |abort: &str| period(&[&night[..], &[("abortOutside", abort)]].concat());
    for (fields, garbage_bytes, expected) in [
        (
            "databaseFragmentationThreshold[size]=9".to_owned(),
            Some(9),
            None,
        ),
        (
            "databaseFragmentationThreshold[size]=undefined".to_owned(),
            None,
            None,
        ),
        (period(&night), None, Some(hours(false))),
        (with("true"), None, Some(hours(true))),
        (with("0"), None, Some(hours(false))),
        (
            period(&[("fromHour", "undefined"), ("toHour", "")]),
            None,
            None,
        ),
    ] {
        let change = changed_bucket(&form(&fields), &current).unwrap().compaction;
        assert_eq!(change.garbage_bytes, Some(garbage_bytes), "{fields}");
        assert_eq!(change.hours, Some(expected), "{fields}");
    }
    // (what is wrong with the night, which fields are named)
    for (fields, wrong) in [
        (period(&night[1..]), &["fromHour"][..]),
        (
            period(&[("toHour", "1")]),
            &["fromHour", "fromMinute", "toMinute"],
        ),
        (
            period(&[&night[1..], &[("fromHour", "24")]].concat()),
            &["fromHour"],
        ),
        (
            period(&[&night[..3], &[("toMinute", "60")]].concat()),
            &["toMinute"],
        ),
        (
            period(&[&night[..2], &[("toHour", "22"), ("toMinute", "0")]].concat()),
            &["fromHour"],
        ),
        (with("maybe"), &["abortOutside"]),
    ] {
        let errors = changed_bucket(&form(&fields), &current).unwrap_err();
        let named: Vec<String> = errors.keys().map(|field| (*field).to_string()).collect();
        let mut wrong: Vec<String> = wrong
            .iter()
            .map(|it| format!("allowedTimePeriod[{it}]"))
            .collect();
        wrong.sort();
        assert_eq!(named, wrong, "{fields}");
    }
}
