//! Conversion of form fields to bucket settings.
//!
//! Field names are those of Couchbase Server's REST interface, "Creating and Editing Buckets", and so are the texts of
//! errors where that page gives them: SDKs and their users match on them. A field that asks for an unsupported feature
//! is rejected, not ignored. Fields without meaning in Kedge (`threadsNumber`, `replicaIndex`, ...) are checked and
//! have no effect, as SDKs always send some of them. Unknown fields are ignored, as there.

mod compaction;
#[cfg(test)]
mod compaction_tests;
mod fields;
mod reader;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use kedge_bucket::{BucketChange, BucketConfig};
use kedge_types::limits::BUCKET_NAME_BYTES_MAX;

pub(crate) use compaction::{NEVER, purge_days};
use fields::BucketFields;
use reader::error_key;

use super::form::FormFields;

/// Errors by field.
pub(crate) type FieldErrors = BTreeMap<&'static str, String>;

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

/// Checks for settings that are invalid together, though each of them is valid.
fn check_together(config: &BucketConfig, errors: &mut FieldErrors) {
    const REPLICAS_MAX: u8 = BucketConfig::REPLICAS_MAX;
    // A SyncWrite has at most three nodes: with more, no write would ever succeed.
    if config.replicas == REPLICAS_MAX && config.durability_min_level != 0 {
        errors.insert(
            error_key("durabilityMinLevel"),
            format!("durabilityMinLevel must be none in a bucket with {REPLICAS_MAX} replicas."),
        );
    }
    let memory = &config.memory;
    if memory.low_wat_percent >= memory.high_wat_percent {
        let says = format!(
            "memoryLowWatermark, {}, must be below memoryHighWatermark, {}.",
            memory.low_wat_percent, memory.high_wat_percent
        );
        errors.insert("memoryLowWatermark", says);
    }
}

/// Returns the settings of a new bucket, with a new uuid.
///
/// # Errors
/// All errors, by field.
pub(crate) fn new_bucket(
    form: &FormFields,
    vbuckets_default: u16,
) -> Result<BucketConfig, FieldErrors> {
    let mut errors = FieldErrors::new();
    let name = form.get("name").unwrap_or_default();
    if let Some(problem) = name_problem(name) {
        errors.insert("name", problem);
    }
    let fields = BucketFields::read(form, &mut errors);
    if form.get("ramQuotaMB").or(form.get("ramQuota")).is_none() {
        let text = "The RAM Quota must be specified and must be a positive integer.";
        errors.insert(error_key("ramQuotaMB"), text.to_owned());
    }
    let vbuckets = fields.vbuckets.unwrap_or(vbuckets_default);
    let mut config = fields.change.apply(&BucketConfig::new(name, vbuckets, 0));
    config.conflict_resolution = fields.conflict_resolution.unwrap_or_default();
    if errors.is_empty() {
        check_together(&config, &mut errors);
    }
    if errors.is_empty() {
        return Ok(config);
    }
    Err(errors)
}

/// Returns the change of settings of an existing bucket.
///
/// # Errors
/// All errors, by field; an unchangeable setting may be given with its current value.
pub(crate) fn changed_bucket(
    form: &FormFields,
    current: &BucketConfig,
) -> Result<BucketChange, FieldErrors> {
    let mut errors = FieldErrors::new();
    let fields = BucketFields::read(form, &mut errors);
    let mut refuse = |field, text: &str| {
        errors.insert(field, text.to_owned());
    };
    if form.get("name").is_some_and(|name| name != current.name) {
        refuse("name", "The name of a bucket cannot be changed");
    }
    let vbuckets = fields.vbuckets;
    if vbuckets.is_some_and(|vbuckets| vbuckets != current.vbuckets) {
        refuse("numVBuckets", "Number of vbuckets cannot be changed");
    }
    let resolution = fields.conflict_resolution;
    if resolution.is_some_and(|resolution| resolution != current.conflict_resolution) {
        let text = "Conflict resolution type not allowed in update bucket";
        refuse("conflictResolutionType", text);
    }
    let change = fields.change;
    let next = change.apply(current);
    // An existing problem is no reason to reject another change.
    let mut before = FieldErrors::new();
    check_together(current, &mut before);
    if before.is_empty() && errors.is_empty() {
        check_together(&next, &mut errors);
    }
    if errors.is_empty() {
        return Ok(change);
    }
    Err(errors)
}
