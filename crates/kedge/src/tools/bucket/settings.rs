//! The settings of `kedge bucket create` and `kedge bucket edit`, as fields of the management's form.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use kedge_bucket::{BucketConfig, BucketSetting, CompactionHours, FieldKind, FormField};
use kedge_types::setting::SettingValue;
use serde_json::Value;

use crate::client::HttpReply;
use crate::tools::ToolError;
use crate::tools::table::table;

/// The fields of a form of the management.
pub(super) type FormFields = Vec<(&'static str, String)>;

/// Settings of a running bucket. A setting that is not given has its default, or keeps its value.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct BucketSettingArgs {
    #[command(flatten)]
    table: SettingFlags,
    #[command(flatten)]
    compaction: CompactionArgs,
}

impl BucketSettingArgs {
    /// Returns the fields of the given settings.
    pub(super) fn fields(&self) -> FormFields {
        let mut fields = self.table.0.clone();
        fields.extend(self.compaction.fields());
        fields
    }
}

/// The settings that have a field of their own: a flag for each row of the table.
#[derive(Clone, Debug, Default)]
struct SettingFlags(FormFields);

/// Returns the rows that have a field of their own.
fn rows() -> impl Iterator<Item = (&'static BucketSetting, &'static FormField)> {
    BucketConfig::table().filter_map(|row| Some((row, row.field.as_ref()?)))
}

fn flag(row: &'static BucketSetting, field: &'static FormField) -> Arg {
    let flag = row.flag();
    let help = format!("{} Values: {}", row.doc.trim(), (field.values)());
    let arg = Arg::new(row.name)
        .value_name(flag.replace('-', "_").to_uppercase())
        .long(flag)
        .help(help);
    let kind = (field.kind)();
    let arg = arg.value_parser(move |text: &str| form_text(kind, text));
    // The flag may be given without a value, so the value needs an equals sign: the next word is the bucket's name.
    if row.name == "flush_enabled" {
        return arg
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true");
    }
    arg
}

/// Converts the text of a flag to that of a field. The server checks values of other kinds.
fn form_text(kind: FieldKind, text: &str) -> Result<String, String> {
    match kind {
        FieldKind::Flag => bool::read(text).map(|it| u8::from(it).to_string()),
        FieldKind::Number => {
            let number = text.parse::<u64>();
            let number = number.map_err(|_| "expected a number".to_owned())?;
            Ok(number.to_string())
        }
        FieldKind::Word => Ok(word(text)),
        FieldKind::Text => Ok(text.to_owned()),
    }
}

impl Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        command.args(rows().map(|(row, field)| flag(row, field)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |(row, field): (&BucketSetting, &FormField)| {
            let text = matches.get_one::<String>(row.name)?;
            Some((field.name, text.clone()))
        };
        Ok(Self(rows().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Settings of compaction, which the management accepts only together.
#[derive(Args, Clone, Debug, Default)]
struct CompactionArgs {
    /// Compact a file when this percentage of it is garbage; 100 is never
    #[arg(long, value_name = "PERCENT", requires = "purge_interval")]
    compaction_fragmentation_percent: Option<u8>,
    /// Purge tombstones older than this number of days in compactions, 0.04 to 60
    #[arg(
        long,
        value_name = "DAYS",
        requires = "compaction_fragmentation_percent"
    )]
    purge_interval: Option<String>,
    /// Compact a file also when it has its share of so much garbage of all files, in bytes
    #[arg(
        long,
        value_name = "BYTES",
        requires = "compaction_fragmentation_percent"
    )]
    compaction_garbage_bytes: Option<u64>,
    /// Compact files automatically only at this time of the day (UTC), as in 22:00-05:30
    #[arg(
        long,
        value_name = "FROM-TO",
        requires = "compaction_fragmentation_percent"
    )]
    compaction_hours: Option<CompactionHours>,
    /// Abort running compactions at the end of these hours
    #[arg(long, requires = "compaction_hours")]
    compaction_abort_outside: bool,
}

impl CompactionArgs {
    fn fields(&self) -> FormFields {
        let (Some(percent), Some(days)) =
            (self.compaction_fragmentation_percent, &self.purge_interval)
        else {
            return FormFields::new();
        };
        let mut fields = vec![
            ("autoCompactionDefined", "true".to_owned()),
            ("parallelDBAndViewCompaction", "false".to_owned()),
            (
                "databaseFragmentationThreshold[percentage]",
                percent.to_string(),
            ),
            ("purgeInterval", days.clone()),
        ];
        if let Some(bytes) = self.compaction_garbage_bytes {
            fields.push(("databaseFragmentationThreshold[size]", bytes.to_string()));
        }
        if let Some(hours) = self.compaction_hours {
            let (from, to) = (hours.from_minute, hours.to_minute);
            fields.extend([
                ("allowedTimePeriod[fromHour]", (from / 60).to_string()),
                ("allowedTimePeriod[fromMinute]", (from % 60).to_string()),
                ("allowedTimePeriod[toHour]", (to / 60).to_string()),
                ("allowedTimePeriod[toMinute]", (to % 60).to_string()),
                (
                    "allowedTimePeriod[abortOutside]",
                    self.compaction_abort_outside.to_string(),
                ),
            ]);
        }
        fields
    }
}

/// Converts a word of the settings, `full_eviction`, to that of the management, `fullEviction`, which is accepted, too.
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

/// Returns the error of a refused form: a row for each invalid field, if the reply lists them.
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
    fn setting_words_are_converted_for_the_management() {
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
    fn only_given_bucket_settings_are_sent() {
        let fields = |flags: &[&str]| {
            let command = BucketSettingArgs::augment_args(Command::new("edit"));
            let words = std::iter::once(&"edit").chain(flags);
            let matches = command.try_get_matches_from(words)?;
            BucketSettingArgs::from_arg_matches(&matches).map(|it| it.fields())
        };
        assert!(fields(&[]).expect("no flags").is_empty());
        let sent = fields(&[
            "--flush-enabled=false",
            "--access-scanner-enabled",
            "true",
            "--eviction-policy=full_eviction",
            "--quota=200",
            "--compaction-fragmentation-percent=40",
            "--purge-interval=0.5",
            "--compaction-garbage-bytes=9",
            "--compaction-hours=22:00-5:30",
        ]);
        let expected = [
            ("ramQuotaMB", "200"),
            ("flushEnabled", "0"),
            ("evictionPolicy", "fullEviction"),
            ("accessScannerEnabled", "1"),
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
        let expected = expected.map(|(field, value)| (field, value.to_owned()));
        assert_eq!(sent.expect("flags of the table"), expected);
        for wrong in ["--replicas=x", "--flush-enabled=2", "--purge-interval=1"] {
            assert!(fields(&[wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn refused_bucket_form_is_shown_as_a_table() {
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
