//! The fields of automatic compaction.
//!
//! They only apply with `autoCompactionDefined=true`, and then all of them: a missing one is undefined, or has its
//! default. `autoCompactionDefined=false` reverts earlier ones.

use kedge_bucket::{CompactionChange, CompactionConfig, CompactionHours};

use super::reader::FormReader;

const SECS_PER_DAY: f64 = 86_400.0;
/// Shortest and longest `purgeInterval`, in days; the shortest is an hour.
const PURGE_DAYS: std::ops::RangeInclusive<f64> = 0.04..=60.0;
/// The share of garbage at which a file is never compacted automatically.
pub(crate) const NEVER: u8 = 100;

const PARALLEL: &str = "parallelDBAndViewCompaction";
const SIZE: &str = "databaseFragmentationThreshold[size]";
const FROM: [&str; 2] = [
    "allowedTimePeriod[fromHour]",
    "allowedTimePeriod[fromMinute]",
];
const TO: [&str; 2] = ["allowedTimePeriod[toHour]", "allowedTimePeriod[toMinute]"];
const ABORT: &str = "allowedTimePeriod[abortOutside]";

pub(super) fn read(reader: &mut FormReader<'_>) -> CompactionChange {
    let says = "autoCompactionDefined is invalid";
    let config = CompactionConfig::default();
    let defaults = CompactionChange {
        fragmentation_percent: Some(config.fragmentation_percent),
        purge_age_secs: Some(config.purge_age_secs),
        garbage_bytes: Some(None),
        hours: Some(None),
        ..CompactionChange::default()
    };
    match reader.boolean_or("autoCompactionDefined", says) {
        None => CompactionChange::default(),
        Some(false) => defaults,
        Some(true) => own(reader, defaults),
    }
}

fn own(reader: &mut FormReader<'_>, defaults: CompactionChange) -> CompactionChange {
    if reader.form.get(PARALLEL).is_none() {
        reader.wrong(PARALLEL, format!("{PARALLEL} is missing"));
    }
    // There are no views: their fields are checked, and have no effect.
    reader.boolean_or(PARALLEL, "parallelDBAndViewCompaction is invalid");
    for (field, max) in [
        ("viewFragmentationThreshold[percentage]", 100),
        ("viewFragmentationThreshold[size]", u64::MAX),
    ] {
        reader.number_if_defined(field, 0..=max, "view fragmentation must be an integer");
    }
    let size = reader.number_if_defined(
        SIZE,
        1..=u64::MAX,
        "database fragmentation size must be an integer of at least 1",
    );
    let percent = reader.number_if_defined(
        "databaseFragmentationThreshold[percentage]",
        1..=u64::from(NEVER),
        "database fragmentation must be an integer from 1 to 100",
    );
    CompactionChange {
        fragmentation_percent: Some(percent.and_then(|it| it.try_into().ok()).unwrap_or(NEVER)),
        purge_age_secs: purge_age(reader).or(defaults.purge_age_secs),
        garbage_bytes: Some(size),
        hours: Some(hours(reader)),
        ..CompactionChange::default()
    }
}

/// Returns the time of the day; all of its fields must be given, or none.
fn hours(reader: &mut FormReader<'_>) -> Option<CompactionHours> {
    let is_given = |field: &str| {
        let text = reader.form.get(field);
        !matches!(text, None | Some("" | "undefined"))
    };
    let given: Vec<&str> = [FROM, TO]
        .concat()
        .into_iter()
        .filter(|it| is_given(it))
        .collect();
    if given.is_empty() {
        return None;
    }
    let mut minute_of = |[hour, minute]: [&'static str; 2]| {
        let mut number = |field: &'static str, max: u64| {
            let says = format!("{field} must be an integer from 0 to {max}");
            if reader.form.get(field).is_none() {
                reader.wrong(field, &*says);
            }
            reader.number_or(field, 0..=max, &says)
        };
        let (hour, minute) = (number(hour, 23), number(minute, 59));
        u16::try_from(hour? * 60 + minute?).ok()
    };
    let (from, to) = (minute_of(FROM), minute_of(TO));
    let abort_outside = reader.boolean_or(ABORT, "abortOutside is invalid");
    let (from_minute, to_minute) = (from?, to?);
    if from_minute == to_minute {
        let says = "Start time must not be the same as end time";
        reader.wrong(FROM[0], says);
    }
    Some(CompactionHours {
        from_minute,
        to_minute,
        abort_outside: abort_outside.unwrap_or(false),
    })
}

fn purge_age(reader: &mut FormReader<'_>) -> Option<u32> {
    const FIELD: &str = "purgeInterval";
    let text = reader.form.get(FIELD)?;
    let days = text.parse().ok().filter(|days| PURGE_DAYS.contains(days));
    if days.is_none() {
        let says = "metadata purge interval must be a number from 0.04 to 60";
        reader.wrong(FIELD, says);
    }
    // At most 60 days: it fits.
    days.map(|days: f64| (days * SECS_PER_DAY).round() as u32)
}

/// Returns the days of a `purgeInterval`.
pub(crate) fn purge_days(secs: u32) -> f64 {
    f64::from(secs) / SECS_PER_DAY
}
