//! The settings of the audit log that an administrator has made. The nodes of a cluster share them with the users.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// A user whose events may be left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditUser {
    /// The name.
    pub name: String,
    /// `local` for users whose passwords are stored here, `external` for others.
    pub domain: String,
}

/// The settings of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditSettings {
    /// True if events are recorded.
    pub enabled: bool,
    /// The longest time between the first and the last line of a file, in seconds.
    pub rotate_interval_s: u32,
    /// The size at which a file is rotated, in bytes.
    pub rotate_bytes: u64,
    /// The age of its last line at which an older file is removed, in seconds; 0 for none.
    pub prune_age_s: u32,
    /// The numbers of events that are not recorded.
    pub disabled: BTreeSet<u32>,
    /// The users of whom those events are not recorded that can be left out.
    pub disabled_users: BTreeSet<AuditUser>,
}
