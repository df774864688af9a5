//! The settings that `kedge bucket create` and `kedge bucket edit` give, as fields of the management's form.

use clap::Args;
use serde_json::Value;

use crate::client::HttpReply;
use crate::tools::ToolError;
use crate::tools::table::table;

/// Settings of a bucket that runs. What is not given has its default, or stays as it is.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct Settings {
    /// Let clients empty it
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true")]
    flush_enabled: Option<bool>,
    /// Replicas wished for, 0 to 3; the cluster's default when not given. One node keeps none
    #[arg(long)]
    replicas: Option<u8>,
    /// Longest time to live of its documents, in seconds; 0 is no limit
    #[arg(long, value_name = "SECS")]
    max_ttl: Option<u32>,
    /// Compressed values: off, passive or active
    #[arg(long, value_name = "MODE")]
    compression: Option<String>,
    /// How many times smaller compression has to make a value, 1 to 1000
    #[arg(long, value_name = "RATIO")]
    min_compression_ratio: Option<String>,
    /// Every write is at least this durable: none, majority, majority_and_persist_to_active or persist_to_majority
    #[arg(long, value_name = "LEVEL")]
    durability_min_level: Option<String>,
    /// What becomes of durable writes with too few nodes: disabled or fallback_to_active_ack
    #[arg(long, value_name = "FALLBACK")]
    durability_impossible_fallback: Option<String>,
    /// What leaves memory when it runs short: value_only or full_eviction
    #[arg(long, value_name = "POLICY")]
    eviction_policy: Option<String>,
    /// Part of the quota, in percent, above which documents leave memory
    #[arg(long, value_name = "PERCENT")]
    mem_high_wat_percent: Option<u8>,
    /// Part of the quota, in percent, down to which they do
    #[arg(long, value_name = "PERCENT")]
    mem_low_wat_percent: Option<u8>,
    /// Whether a start waits until documents are in memory: background or blocking
    #[arg(long, value_name = "BEHAVIOR")]
    warmup_behavior: Option<String>,
    /// Whether it is written down which documents are in memory
    #[arg(long, value_name = "BOOL")]
    access_scanner_enabled: Option<bool>,
    /// A file is compacted when so much of it is garbage, in percent; 100 is never
    #[arg(long, value_name = "PERCENT", requires = "purge_interval")]
    compaction_fragmentation_percent: Option<u8>,
    /// Compactions leave out tombstones that are older than so many days, 0.04 to 60
    #[arg(
        long,
        value_name = "DAYS",
        requires = "compaction_fragmentation_percent"
    )]
    purge_interval: Option<String>,
    /// A file is compacted also when it has its part of so much garbage of all files, in bytes
    #[arg(
        long,
        value_name = "BYTES",
        requires = "compaction_fragmentation_percent"
    )]
    compaction_garbage_bytes: Option<u64>,
    /// Files are compacted by themselves at this time of the day (UTC) only, as in 22:00-05:30
    #[arg(
        long,
        value_name = "FROM-TO",
        requires = "compaction_fragmentation_percent"
    )]
    compaction_hours: Option<Hours>,
    /// What is being compacted at the end of these hours is given up
    #[arg(long, requires = "compaction_hours")]
    compaction_abort_outside: bool,
}

/// A time of the day, as hours and minutes of its beginning and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hours([u8; 4]);

impl std::str::FromStr for Hours {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = || {
            let (from, to) = text.split_once('-')?;
            let ((from_hour, from_minute), (to_hour, to_minute)) =
                (from.split_once(':')?, to.split_once(':')?);
            let number = |text: &str| text.parse().ok();
            Some(Self([
                number(from_hour)?,
                number(from_minute)?,
                number(to_hour)?,
                number(to_minute)?,
            ]))
        };
        numbers().ok_or_else(|| "it has to be as in 22:00-05:30".to_owned())
    }
}

/// A form of the management.
pub(super) type Fields = Vec<(&'static str, String)>;

impl Settings {
    /// The fields of what is given.
    pub(super) fn fields(&self) -> Fields {
        let bool = |it: bool| if it { "1" } else { "0" }.to_owned();
        let number = |it: &u8| it.to_string();
        let given = [
            ("flushEnabled", self.flush_enabled.map(bool)),
            ("replicaNumber", self.replicas.as_ref().map(number)),
            ("maxTTL", self.max_ttl.map(|it| it.to_string())),
            ("compressionMode", self.compression.clone()),
            ("minCompressionRatio", self.min_compression_ratio.clone()),
            (
                "durabilityMinLevel",
                self.durability_min_level.as_deref().map(word),
            ),
            (
                "durabilityImpossibleFallback",
                self.durability_impossible_fallback.as_deref().map(word),
            ),
            ("evictionPolicy", self.eviction_policy.as_deref().map(word)),
            (
                "memoryHighWatermark",
                self.mem_high_wat_percent.as_ref().map(number),
            ),
            (
                "memoryLowWatermark",
                self.mem_low_wat_percent.as_ref().map(number),
            ),
            ("warmupBehavior", self.warmup_behavior.clone()),
            (
                "accessScannerEnabled",
                self.access_scanner_enabled.map(bool),
            ),
        ];
        let mut fields: Fields = given
            .into_iter()
            .filter_map(|(field, value)| Some((field, value?)))
            .collect();
        // The management takes both together only.
        if let (Some(percent), Some(days)) =
            (self.compaction_fragmentation_percent, &self.purge_interval)
        {
            fields.push(("autoCompactionDefined", "true".to_owned()));
            fields.push(("parallelDBAndViewCompaction", "false".to_owned()));
            let percentage = "databaseFragmentationThreshold[percentage]";
            fields.push((percentage, percent.to_string()));
            fields.push(("purgeInterval", days.clone()));
            if let Some(bytes) = self.compaction_garbage_bytes {
                fields.push(("databaseFragmentationThreshold[size]", bytes.to_string()));
            }
            if let Some(Hours([from_hour, from_minute, to_hour, to_minute])) = self.compaction_hours
            {
                fields.extend([
                    ("allowedTimePeriod[fromHour]", from_hour.to_string()),
                    ("allowedTimePeriod[fromMinute]", from_minute.to_string()),
                    ("allowedTimePeriod[toHour]", to_hour.to_string()),
                    ("allowedTimePeriod[toMinute]", to_minute.to_string()),
                    (
                        "allowedTimePeriod[abortOutside]",
                        self.compaction_abort_outside.to_string(),
                    ),
                ]);
            }
        }
        fields
    }
}

/// A word of the settings, `full_eviction`, as the management has it, `fullEviction`, which may be given, too.
fn word(text: &str) -> String {
    if text == "majority_and_persist_to_active" {
        return "majorityAndPersistActive".to_owned();
    }
    let mut parts = text.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |word, part| {
        let (head, tail) = part.split_at(part.chars().next().map_or(0, char::len_utf8));
        word + &head.to_uppercase() + tail
    })
}

/// The refusal of a form: a row for each field that is wrong, if that is what the reply says.
pub(super) fn refusal(reply: &HttpReply) -> Option<ToolError> {
    let body: Value = serde_json::from_slice(&reply.body).ok()?;
    let errors = body.get("errors")?.as_object()?;
    if errors.is_empty() || errors.contains_key("_") {
        return None;
    }
    let mut rows = vec![vec!["FIELD".to_owned(), "WHAT IS WRONG".to_owned()]];
    for (field, says) in errors {
        rows.push(vec![field.clone(), says.as_str()?.to_owned()]);
    }
    let rows = table("ll", &rows);
    Some(ToolError::Usage(format!(
        "the server refused these settings\n{}",
        rows.trim_end()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_management() {
        for (given, sent) in [
            ("none", "none"),
            ("value_only", "valueOnly"),
            ("fullEviction", "fullEviction"),
            ("persist_to_majority", "persistToMajority"),
            ("majority_and_persist_active", "majorityAndPersistActive"),
            ("majority_and_persist_to_active", "majorityAndPersistActive"),
            ("fallback_to_active_ack", "fallbackToActiveAck"),
            ("", ""),
            ("a__ö_", "aÖ"),
        ] {
            assert_eq!(word(given), sent);
        }
    }

    #[test]
    fn only_what_is_given_is_sent() {
        assert!(Settings::default().fields().is_empty());
        let settings = Settings {
            flush_enabled: Some(false),
            eviction_policy: Some("full_eviction".to_owned()),
            compaction_fragmentation_percent: Some(40),
            purge_interval: Some("0.5".to_owned()),
            compaction_garbage_bytes: Some(9),
            compaction_hours: Some("22:00-5:30".parse().expect("two times")),
            ..Settings::default()
        };
        let expected = [
            ("flushEnabled", "0"),
            ("evictionPolicy", "fullEviction"),
            ("autoCompactionDefined", "true"),
            ("parallelDBAndViewCompaction", "false"),
            ("databaseFragmentationThreshold[percentage]", "40"),
            ("purgeInterval", "0.5"),
            ("databaseFragmentationThreshold[size]", "9"),
            ("allowedTimePeriod[fromHour]", "22"),
            ("allowedTimePeriod[fromMinute]", "0"),
            ("allowedTimePeriod[toHour]", "5"),
            ("allowedTimePeriod[toMinute]", "30"),
            ("allowedTimePeriod[abortOutside]", "false"),
        ];
        for wrong in ["", "22:00", "22-5", "22:00-5:x", "22:00-300:1"] {
            assert!(wrong.parse::<Hours>().is_err(), "{wrong}");
        }
        let expected = expected.map(|(field, value)| (field, value.to_owned()));
        assert_eq!(settings.fields(), expected);
    }

    #[test]
    fn refusals_are_tables() {
        let reply = |body: &str| HttpReply {
            code: 400,
            body: body.as_bytes().to_vec(),
        };
        let refused = refusal(&reply(r#"{"errors":{"maxTTL":"too much","rank":"no"}}"#));
        assert_eq!(
            refused.expect("a refusal").to_string(),
            "the server refused these settings\n\
             FIELD   WHAT IS WRONG\n\
             maxTTL  too much\n\
             rank    no"
        );
        for other in ["", "[]", r#"{"errors":{}}"#, r#"{"errors":{"_":"no"}}"#] {
            assert!(refusal(&reply(other)).is_none(), "{other}");
        }
    }
}
