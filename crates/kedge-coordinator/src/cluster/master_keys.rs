//! Master keys of encryption at rest: a node without one cannot keep an encrypted bucket, so nothing gives it one.

use std::collections::BTreeMap;

use kedge_bucket::BucketConfig;
use kedge_cluster::{ClusterError, ClusterMap, NodeRecord};
use kedge_node::coordination::ChangeError;

/// Refuses the first bucket of a cluster if it is to be encrypted, and the node has no master key.
///
/// # Errors
/// `Membership`.
pub(super) fn require_of_first(
    bucket: Option<&BucketConfig>,
    has_master_key: bool,
) -> Result<(), ClusterError> {
    match bucket.filter(|bucket| bucket.encryption.enabled && !has_master_key) {
        None => Ok(()),
        Some(bucket) => Err(ClusterError::Membership(format!(
            "bucket {} is to be encrypted, and the server has no master key: give it with encryption_master_key",
            bucket.name
        ))),
    }
}

/// Refuses the encryption of a bucket unless all nodes of the map have a master key, by the records that they put at their start.
///
/// # Errors
/// `Refused`.
pub(super) fn require_of_all(
    map: &ClusterMap,
    records: &BTreeMap<String, NodeRecord>,
) -> Result<(), ChangeError> {
    let names = map.nodes.values().map(|node| &node.name);
    let lacks = |name: &&String| !records.get(*name).is_some_and(|it| it.has_master_key);
    match names.filter(lacks).min() {
        None => Ok(()),
        Some(name) => Err(ChangeError::Refused(format!(
            "encryption_at_rest needs a master key on all nodes, and node \"{name}\" has none: start it with \
             encryption_master_key"
        ))),
    }
}

/// Refuses a new node without a master key if some bucket of the map is encrypted.
///
/// # Errors
/// `Refused`.
pub(super) fn require_of_new(
    map: &ClusterMap,
    name: &str,
    record: &NodeRecord,
) -> Result<(), ChangeError> {
    let is_encrypted = |settings: &serde_json::Value| settings["encryption"]["enabled"] == true;
    let mut buckets = map.buckets.iter();
    let encrypted = buckets.find(|bucket| is_encrypted(&bucket.settings));
    match encrypted.filter(|_| !record.has_master_key) {
        None => Ok(()),
        Some(bucket) => Err(ChangeError::Refused(format!(
            "node \"{name}\" has no master key, and bucket \"{}\" is encrypted: start the node with \
             encryption_master_key",
            bucket.name
        ))),
    }
}
