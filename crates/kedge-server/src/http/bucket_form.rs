//! From the fields of a form to the settings of a bucket.
//!
//! Field names and the texts of errors are those of Couchbase Server's REST interface, "Creating and Editing Buckets":
//! SDKs and their users match on them. A field that asks for something that Kedge does not do is refused rather than
//! ignored; fields that mean nothing here (`threadsNumber`, `replicaIndex`, ...) are ignored, as SDKs send them always.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use kedge_bucket::{
    BucketChange, BucketConfig, CompressionMode, ConflictResolution, DurabilityFallback,
    EvictionPolicy, MinRatio,
};
use kedge_types::limits::BUCKET_NAME_BYTES_MAX;

use super::form::Form;

/// What is wrong, by field.
pub(crate) type Errors = BTreeMap<&'static str, String>;

/// Largest quota, in MiB (16 TiB).
const QUOTA_MIB_MAX: u64 = 1 << 24;
/// Most replicas that a bucket can ask for.
const REPLICAS_MAX: u64 = 3;
/// Longest time to live, in seconds: what fits 31 bits.
const TTL_SECS_MAX: u64 = i32::MAX as u64;

/// The levels of `durabilityMinLevel`; the place of each is its number on the wire.
pub(crate) const DURABILITY_LEVELS: [&str; 4] = [
    "none",
    "majority",
    "majorityAndPersistActive",
    "persistToMajority",
];

/// The form's fields; `None` for one that was not given or is wrong.
#[derive(Debug, Default)]
struct Fields {
    quota_mib: Option<u64>,
    flush_enabled: Option<bool>,
    replicas: Option<u8>,
    compression: Option<CompressionMode>,
    min_compression_ratio: Option<MinRatio>,
    eviction_policy: Option<EvictionPolicy>,
    durability_min_level: Option<u8>,
    durability_fallback: Option<DurabilityFallback>,
    max_ttl_secs: Option<u32>,
    conflict_resolution: Option<ConflictResolution>,
    vbuckets: Option<u16>,
}

impl Fields {
    fn read(form: &Form, errors: &mut Errors) -> Self {
        let mut reader = Reader { form, errors };
        reader.refuse_foreign_kinds();
        Self {
            quota_mib: reader.number("ramQuotaMB", 1..=QUOTA_MIB_MAX),
            flush_enabled: reader.choice(
                "flushEnabled",
                &[("0", false), ("1", true), ("false", false), ("true", true)],
            ),
            replicas: narrow(reader.number("replicaNumber", 0..=REPLICAS_MAX)),
            compression: reader.choice(
                "compressionMode",
                &[
                    ("off", CompressionMode::Off),
                    ("passive", CompressionMode::Passive),
                    ("active", CompressionMode::Active),
                ],
            ),
            min_compression_ratio: reader.min_ratio(),
            eviction_policy: reader.choice(
                "evictionPolicy",
                &[
                    ("valueOnly", EvictionPolicy::ValueOnly),
                    ("fullEviction", EvictionPolicy::FullEviction),
                ],
            ),
            durability_min_level: reader.choice(
                "durabilityMinLevel",
                &[
                    (DURABILITY_LEVELS[0], 0),
                    (DURABILITY_LEVELS[1], 1),
                    (DURABILITY_LEVELS[2], 2),
                    (DURABILITY_LEVELS[3], 3),
                ],
            ),
            durability_fallback: reader.choice(
                "durabilityImpossibleFallback",
                &[
                    ("disabled", DurabilityFallback::Disabled),
                    ("fallbackToActiveAck", DurabilityFallback::ActiveAck),
                ],
            ),
            max_ttl_secs: narrow(reader.number("maxTTL", 0..=TTL_SECS_MAX)),
            conflict_resolution: reader.choice(
                "conflictResolutionType",
                &[
                    ("seqno", ConflictResolution::Seqno),
                    ("lww", ConflictResolution::Lww),
                ],
            ),
            vbuckets: narrow(reader.number("numVBuckets", 1..=u64::from(u16::MAX))),
        }
    }
}

/// The range was checked, so the number fits.
fn narrow<T: TryFrom<u64>>(number: Option<u64>) -> Option<T> {
    number.and_then(|number| T::try_from(number).ok())
}

struct Reader<'a> {
    form: &'a Form,
    errors: &'a mut Errors,
}

impl Reader<'_> {
    fn number(&mut self, field: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let text = self.form.get(field)?;
        let number = text.parse().ok().filter(|number| range.contains(number));
        if number.is_none() {
            let (low, high) = range.into_inner();
            self.wrong(
                field,
                format!("{field} must be a number from {low} to {high}."),
            );
        }
        number
    }

    fn choice<T: Copy>(&mut self, field: &'static str, choices: &[(&str, T)]) -> Option<T> {
        let text = self.form.get(field)?;
        let chosen = choices.iter().find(|(name, _)| *name == text);
        if chosen.is_none() {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            self.wrong(
                field,
                format!("{field} must be one of {}.", names.join(", ")),
            );
        }
        chosen.map(|(_, choice)| *choice)
    }

    fn min_ratio(&mut self) -> Option<MinRatio> {
        const FIELD: &str = "minCompressionRatio";
        let text = self.form.get(FIELD)?;
        let ratio = text.parse().ok().and_then(MinRatio::new);
        if ratio.is_none() {
            self.wrong(FIELD, format!("{FIELD} must be a number from 1 to 1000."));
        }
        ratio
    }

    /// Kinds of buckets that there are not.
    fn refuse_foreign_kinds(&mut self) {
        match self.form.get("bucketType") {
            None | Some("couchbase" | "membase") => {}
            Some(kind @ ("ephemeral" | "memcached")) => {
                self.wrong(
                    "bucketType",
                    format!("Buckets of type {kind} are not supported."),
                );
            }
            Some(_) => self.wrong("bucketType", "invalid bucket type"),
        }
        match self.form.get("storageBackend") {
            None | Some("couchstore" | "undefined") => {}
            Some("magma") => self.wrong("storageBackend", "Magma is not supported."),
            Some(_) => self.wrong("storageBackend", "storage backend must be couchstore"),
        }
        for field in [
            "historyRetentionCollectionDefault",
            "historyRetentionBytes",
            "historyRetentionSeconds",
        ] {
            if !matches!(self.form.get(field), None | Some("" | "0" | "false")) {
                self.wrong(field, "History Retention can only used with Magma");
            }
        }
    }

    fn wrong(&mut self, field: &'static str, text: impl Into<String>) {
        self.errors.insert(error_key(field), text.into());
    }
}

/// Two fields have another name in errors than in forms; SDKs know both.
fn error_key(field: &'static str) -> &'static str {
    match field {
        "ramQuotaMB" => "ramQuota",
        "durabilityMinLevel" => "durability_min_level",
        _ => field,
    }
}

fn name_problem(name: &str) -> Option<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_-.%".contains(c);
    if name.is_empty() {
        return Some("Bucket name needs to be specified".to_owned());
    }
    if !name.chars().all(allowed) {
        return Some(
            "Bucket name can only contain characters in range A-Z, a-z, 0-9 as well as underscore, period, dash & \
             percent. Consult the documentation."
                .to_owned(),
        );
    }
    if name.starts_with('.') {
        return Some("Bucket name cannot start with dot.".to_owned());
    }
    (name.len() > BUCKET_NAME_BYTES_MAX)
        .then(|| format!("Bucket name cannot exceed {BUCKET_NAME_BYTES_MAX} characters"))
}

const MIB: u64 = 1 << 20;

/// The settings of a new bucket, with a new identity.
///
/// # Errors
/// What is wrong, by field; all at once.
pub(crate) fn new_bucket(form: &Form, vbuckets_default: u16) -> Result<BucketConfig, Errors> {
    let mut errors = Errors::new();
    let name = form.get("name").unwrap_or_default();
    if let Some(problem) = name_problem(name) {
        errors.insert("name", problem);
    }
    let fields = Fields::read(form, &mut errors);
    if form.get("ramQuotaMB").is_none() {
        let text = "The RAM Quota must be specified and must be a positive integer.";
        errors.insert(error_key("ramQuotaMB"), text.to_owned());
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let vbuckets = fields.vbuckets.unwrap_or(vbuckets_default);
    let quota_bytes = fields.quota_mib.unwrap_or_default() * MIB;
    let mut config = change(&fields).apply(&BucketConfig::new(name, vbuckets, quota_bytes));
    config.conflict_resolution = fields.conflict_resolution.unwrap_or_default();
    Ok(config)
}

/// The change of settings of an existing bucket.
///
/// # Errors
/// What is wrong, by field; a setting that cannot change may be given with the value it has.
pub(crate) fn changed_bucket(form: &Form, current: &BucketConfig) -> Result<BucketChange, Errors> {
    let mut errors = Errors::new();
    let fields = Fields::read(form, &mut errors);
    if form.get("name").is_some_and(|name| name != current.name) {
        errors.insert("name", "The name of a bucket cannot be changed".to_owned());
    }
    if fields
        .vbuckets
        .is_some_and(|vbuckets| vbuckets != current.vbuckets)
    {
        errors.insert(
            "numVBuckets",
            "Number of vbuckets cannot be changed".to_owned(),
        );
    }
    let resolution = fields.conflict_resolution;
    if resolution.is_some_and(|resolution| resolution != current.conflict_resolution) {
        let text = "Conflict resolution type not allowed in update bucket";
        errors.insert("conflictResolutionType", text.to_owned());
    }
    if errors.is_empty() {
        return Ok(change(&fields));
    }
    Err(errors)
}

fn change(fields: &Fields) -> BucketChange {
    BucketChange {
        quota_bytes: fields.quota_mib.map(|mib| mib * MIB),
        flush_enabled: fields.flush_enabled,
        compression: fields.compression,
        min_compression_ratio: fields.min_compression_ratio,
        max_ttl_secs: fields.max_ttl_secs,
        durability_min_level: fields.durability_min_level,
        durability_impossible_fallback: fields.durability_fallback,
        replicas: fields.replicas,
        eviction_policy: fields.eviction_policy,
        ..BucketChange::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> Form {
        Form::parse(text.as_bytes())
    }

    #[test]
    fn a_new_bucket_takes_every_setting() {
        let config = new_bucket(
            &form(
                "name=b%25.x&bucketType=membase&ramQuotaMB=256&replicaNumber=2&flushEnabled=1&\
                 evictionPolicy=fullEviction&compressionMode=active&minCompressionRatio=1.5&durabilityMinLevel=persistToMajority&\
                 durabilityImpossibleFallback=fallbackToActiveAck&\
                 storageBackend=couchstore&maxTTL=3600&conflictResolutionType=lww&numVBuckets=64&replicaIndex=1",
            ),
            1024,
        )
        .unwrap();
        let expected = BucketConfig {
            uuid: config.uuid.clone(),
            flush_enabled: true,
            compression: CompressionMode::Active,
            min_compression_ratio: MinRatio::new(1.5).unwrap(),
            max_ttl_secs: 3_600,
            durability_min_level: 3,
            durability_impossible_fallback: DurabilityFallback::ActiveAck,
            replicas: 2,
            eviction_policy: EvictionPolicy::FullEviction,
            conflict_resolution: ConflictResolution::Lww,
            ..BucketConfig::new("b%.x", 64, 256 << 20)
        };
        assert_eq!(config, expected);
        config.check().unwrap();
    }

    #[test]
    fn a_new_bucket_has_defaults() {
        let config = new_bucket(&form("name=b&ramQuotaMB=100"), 1024).unwrap();
        let expected = BucketConfig {
            uuid: config.uuid.clone(),
            ..BucketConfig::new("b", 1024, 100 << 20)
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn wrong_fields_are_named() {
        let long = format!("name={}", "x".repeat(101));
        // (fields beside a good name and quota, the field that is wrong, part of what is said)
        for (fields, field, says) in [
            ("name=", "name", "needs to be specified"),
            ("name=a b", "name", "can only contain"),
            ("name=a/b", "name", "can only contain"),
            ("name=.a", "name", "start with dot"),
            (&long, "name", "exceed 100"),
            ("ramQuotaMB=", "ramQuota", "from 1"),
            ("ramQuotaMB=0", "ramQuota", "from 1"),
            ("ramQuotaMB=-1", "ramQuota", "from 1"),
            ("ramQuotaMB=99999999999999999999", "ramQuota", "from 1"),
            ("bucketType=ephemeral", "bucketType", "not supported"),
            ("bucketType=memcached", "bucketType", "not supported"),
            ("bucketType=x", "bucketType", "invalid"),
            ("storageBackend=magma", "storageBackend", "not supported"),
            ("storageBackend=x", "storageBackend", "couchstore"),
            (
                "compressionMode=x",
                "compressionMode",
                "off, passive, active",
            ),
            (
                "minCompressionRatio=0.9",
                "minCompressionRatio",
                "1 to 1000",
            ),
            ("minCompressionRatio=x", "minCompressionRatio", "1 to 1000"),
            ("flushEnabled=2", "flushEnabled", "one of"),
            ("replicaNumber=4", "replicaNumber", "0 to 3"),
            ("evictionPolicy=noEviction", "evictionPolicy", "valueOnly"),
            (
                "durabilityMinLevel=all",
                "durability_min_level",
                "none, majority",
            ),
            (
                "durabilityImpossibleFallback=active",
                "durabilityImpossibleFallback",
                "disabled, fallbackToActiveAck",
            ),
            ("maxTTL=2147483648", "maxTTL", "2147483647"),
            (
                "conflictResolutionType=custom",
                "conflictResolutionType",
                "seqno, lww",
            ),
            ("numVBuckets=0", "numVBuckets", "1 to 65535"),
            ("numVBuckets=65536", "numVBuckets", "1 to 65535"),
            (
                "historyRetentionSeconds=9",
                "historyRetentionSeconds",
                "Magma",
            ),
            (
                "historyRetentionCollectionDefault=true",
                "historyRetentionCollectionDefault",
                "Magma",
            ),
        ] {
            let errors =
                new_bucket(&form(&format!("name=b&ramQuotaMB=100&{fields}")), 8).unwrap_err();
            assert_eq!(errors.len(), 1, "{fields}: {errors:?}");
            assert!(errors[field].contains(says), "{fields}: {errors:?}");
        }
        let errors = new_bucket(&form(""), 8).unwrap_err();
        assert_eq!(
            errors.keys().copied().collect::<Vec<_>>(),
            ["name", "ramQuota"]
        );
    }

    #[test]
    fn a_change_leaves_alone_what_is_not_given() {
        let current = BucketConfig::new("b", 8, 100 << 20);
        let same = "name=b&bucketType=couchbase&numVBuckets=8&conflictResolutionType=seqno";
        let change = changed_bucket(&form(same), &current).unwrap();
        assert_eq!(change, BucketChange::default());
        let change = changed_bucket(&form("ramQuotaMB=200&flushEnabled=1"), &current).unwrap();
        assert_eq!(
            change,
            BucketChange {
                quota_bytes: Some(200 << 20),
                flush_enabled: Some(true),
                ..BucketChange::default()
            }
        );
    }

    #[test]
    fn what_cannot_change_is_refused() {
        let current = BucketConfig::new("b", 8, 100 << 20);
        for (fields, field) in [
            ("name=c", "name"),
            ("numVBuckets=16", "numVBuckets"),
            ("conflictResolutionType=lww", "conflictResolutionType"),
            ("bucketType=ephemeral", "bucketType"),
            ("ramQuotaMB=x", "ramQuota"),
        ] {
            let errors = changed_bucket(&form(fields), &current).unwrap_err();
            assert_eq!(
                errors.keys().copied().collect::<Vec<_>>(),
                [field],
                "{errors:?}"
            );
        }
    }
}
