//! The fields of automatic compaction.
//!
//! They count only with `autoCompactionDefined=true`, and then all of them: what is not given is undefined, or has its
//! default. `autoCompactionDefined=false` takes back what was given before.

use kedge_bucket::{CompactionChange, CompactionConfig};

use super::reader::Reader;

const SECS_PER_DAY: f64 = 86_400.0;
/// Shortest and longest `purgeInterval`, in days; the shortest is an hour.
const PURGE_DAYS: std::ops::RangeInclusive<f64> = 0.04..=60.0;
/// The share of garbage at which a file is never compacted by itself.
pub(crate) const NEVER: u8 = 100;

const PARALLEL: &str = "parallelDBAndViewCompaction";
const NO_SIZE: &str = "Compaction by the size of what is garbage is not supported.";
const NO_PERIOD: &str = "Compaction at certain times of the day only is not supported.";

pub(super) fn read(reader: &mut Reader<'_>) -> CompactionChange {
    let says = "autoCompactionDefined is invalid";
    let defaults = CompactionChange {
        fragmentation_percent: Some(CompactionConfig::FRAGMENTATION_PERCENT_DEFAULT),
        purge_age_secs: Some(CompactionConfig::PURGE_AGE_SECS_DEFAULT),
        ..CompactionChange::default()
    };
    match reader.boolean_or("autoCompactionDefined", says) {
        None => CompactionChange::default(),
        Some(false) => defaults,
        Some(true) => own(reader, defaults),
    }
}

fn own(reader: &mut Reader<'_>, defaults: CompactionChange) -> CompactionChange {
    if reader.form.get(PARALLEL).is_none() {
        reader.wrong(PARALLEL, format!("{PARALLEL} is missing"));
    }
    // There are no views: what they would do is checked, and means nothing.
    reader.boolean_or(PARALLEL, "parallelDBAndViewCompaction is invalid");
    for (field, max) in [
        ("viewFragmentationThreshold[percentage]", 100),
        ("viewFragmentationThreshold[size]", u64::MAX),
    ] {
        reader.number_if_defined(field, 0..=max, "view fragmentation must be an integer");
    }
    reader.only(
        "databaseFragmentationThreshold[size]",
        &["", "undefined"],
        NO_SIZE,
    );
    for field in [
        "allowedTimePeriod[fromHour]",
        "allowedTimePeriod[fromMinute]",
        "allowedTimePeriod[toHour]",
        "allowedTimePeriod[toMinute]",
        "allowedTimePeriod[abortOutside]",
    ] {
        reader.only(field, &["", "undefined"], NO_PERIOD);
    }
    let percent = reader.number_if_defined(
        "databaseFragmentationThreshold[percentage]",
        1..=u64::from(NEVER),
        "database fragmentation must be an integer from 1 to 100",
    );
    CompactionChange {
        fragmentation_percent: Some(percent.and_then(|it| it.try_into().ok()).unwrap_or(NEVER)),
        purge_age_secs: purge_age(reader).or(defaults.purge_age_secs),
        ..CompactionChange::default()
    }
}

fn purge_age(reader: &mut Reader<'_>) -> Option<u32> {
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

/// The days of a `purgeInterval`.
pub(crate) fn purge_days(secs: u32) -> f64 {
    f64::from(secs) / SECS_PER_DAY
}
