//! The fields of a bucket's form, except its name.

use kedge_bucket::{BucketChange, BucketConfig, ConflictResolution};

use super::reader::FormReader;
use super::{FieldErrors, compaction};
use crate::form::FormFields;

/// Fields of features that Kedge does not have, their harmless values, and the error for other values.
const ELSEWHERE: [(&str, &[&str], &str); 6] = [
    (
        "historyRetentionCollectionDefault",
        &["", "0", "false"],
        "History Retention can only used with Magma",
    ),
    (
        "historyRetentionBytes",
        &["", "0"],
        "History Retention can only used with Magma",
    ),
    (
        "historyRetentionSeconds",
        &["", "0"],
        "History Retention can only used with Magma",
    ),
    (
        "magmaSeqTreeDataBlockSize",
        &[""],
        "magmaSeqTreeDataBlockSize can only be used with Magma.",
    ),
    (
        "enableCrossClusterVersioning",
        &["", "0", "false"],
        "Cross cluster versioning is not supported.",
    ),
    (
        "continuousBackupEnabled",
        &["", "0", "false"],
        "Continuous backup is not supported.",
    ),
];

/// The form's fields; `None` for one that is missing or wrong.
#[derive(Debug, Default)]
pub(super) struct BucketFields {
    pub(super) conflict_resolution: Option<ConflictResolution>,
    pub(super) vbuckets: Option<u16>,
    /// The requested change of settings.
    pub(super) change: BucketChange,
}

impl BucketFields {
    pub(super) fn read(form: &FormFields, errors: &mut FieldErrors) -> Self {
        let mut reader = FormReader { form, errors };
        let reader = &mut reader;
        foreign_kinds(reader);
        for (field, nothing, says) in ELSEWHERE {
            reader.only(field, nothing, says);
        }
        without_effect(reader);
        let mut change = BucketChange {
            compaction: compaction::read(reader),
            ..BucketChange::default()
        };
        for field in BucketConfig::table().filter_map(|row| row.field.as_ref()) {
            // The newer name takes precedence, so it is read last.
            for name in std::iter::once(field.name).chain(field.newer) {
                let Some(text) = reader.form.get(name) else {
                    continue;
                };
                if let Err(says) = (field.read)(name, text, &mut change) {
                    reader.wrong(name, says);
                }
            }
        }
        let orders = [ConflictResolution::Seqno, ConflictResolution::Lww];
        let orders = orders.map(|order| (order.form_name(), order));
        let vbuckets = reader.number("numVBuckets", 1..=u64::from(u16::MAX));
        Self {
            conflict_resolution: reader.choice("conflictResolutionType", &orders),
            // The range was checked, so the number fits.
            vbuckets: vbuckets.and_then(|number| number.try_into().ok()),
            change,
        }
    }
}

/// Rejects unsupported kinds of buckets.
fn foreign_kinds(reader: &mut FormReader<'_>) {
    match reader.form.get("bucketType") {
        None | Some("couchbase" | "membase") => {}
        Some(kind @ ("ephemeral" | "memcached")) => {
            let says = format!("Buckets of type {kind} are not supported.");
            reader.wrong("bucketType", says);
        }
        Some(_) => reader.wrong("bucketType", "invalid bucket type"),
    }
    match reader.form.get("storageBackend") {
        None | Some("couchstore" | "undefined") => {}
        Some("magma") => reader.wrong("storageBackend", "Magma is not supported."),
        Some(_) => reader.wrong("storageBackend", "storage backend must be couchstore"),
    }
}

/// Checks fields that have no effect: there are no views, threads are those of all buckets, buckets do not wait for
/// each other when vBuckets move, an eviction policy needs no restart, and expired documents are removed every minute.
fn without_effect(reader: &mut FormReader<'_>) {
    let flags = [("0", ()), ("1", ()), ("false", ()), ("true", ())];
    reader.choice_or(
        "replicaIndex",
        &flags[..2],
        "replicaIndex can only be 1 or 0",
    );
    reader.choice("noRestart", &flags);
    reader.number("threadsNumber", 0..=8);
    reader.number("rank", 0..=1_000);
    reader.number("expiryPagerSleepTime", 1..=u64::from(u32::MAX));
    reader.number("versionPruningWindowHrs", 1..=u64::from(u32::MAX));
}
