//! The kinds of audit events.
//!
//! Numbers, names and which of them can be left out are those of Couchbase's reference of audit events, where it has the event. Events
//! that only Kedge has are numbered from [`OWN_IDS`] on.

use serde::Serialize;
use serde_json::json;

use crate::timestamp::iso_8601;

/// The first number of events that only Kedge has.
const OWN_IDS: u32 = 61_440;

/// A description of a kind of event, for `GET /settings/audit/descriptors`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct EventDescriptor {
    /// The number.
    pub id: u32,
    /// The name.
    pub name: &'static str,
    /// The part of the server that records it.
    pub module: &'static str,
    /// The cause.
    pub description: &'static str,
    /// True if the event can be left out while others are recorded.
    #[serde(skip)]
    pub filterable: bool,
}

/// Management.
const REST: &str = "ns_server";
/// The key-value ports.
const KV: &str = "memcached";
/// The log itself.
const LOG: &str = "auditd";
/// Features that only Kedge has.
const OWN: &str = "kedge";

macro_rules! events {
    ($($(#[doc = $doc:literal])+ $kind:ident = $id:expr, $name:literal, $module:ident, $filterable:literal;)+) => {
        /// The kind of an event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum EventKind {
            $($(#[doc = $doc])+ $kind,)+
        }

        impl EventKind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$kind),+];

            /// Returns the description.
            #[must_use]
            pub fn descriptor(self) -> EventDescriptor {
                match self {
                    $(Self::$kind => EventDescriptor {
                        id: $id,
                        name: $name,
                        module: $module,
                        description: concat!($($doc),+).trim_ascii(),
                        filterable: $filterable,
                    },)+
                }
            }
        }
    };
}

events! {
    /// The audit log was enabled, or its settings changed.
    Configured = 4_096, "configured audit daemon", LOG, false;
    /// A user has logged in to the console.
    ManagementLoggedIn = 8_192, "login success", REST, false;
    /// A login to management has failed.
    ManagementLoginFailed = 8_193, "login failure", REST, false;
    /// A user was deleted.
    UserDeleted = 8_194, "delete user", REST, false;
    /// A user has changed its own password.
    PasswordChanged = 8_195, "user credentials change", REST, false;
    /// A node was added to the cluster.
    NodeAdded = 8_196, "add node", REST, false;
    /// A node was removed from the cluster.
    NodeRemoved = 8_197, "remove node", REST, false;
    /// Nodes were failed over, or a graceful failover has begun.
    FailedOver = 8_198, "failover nodes", REST, false;
    /// A failed-over node is to be recovered.
    RecoveryEntered = 8_199, "enter node recovery", REST, false;
    /// A rebalance has begun.
    RebalanceStarted = 8_200, "rebalance initiated", REST, false;
    /// A bucket was created.
    BucketCreated = 8_201, "create bucket", REST, false;
    /// A bucket was changed.
    BucketModified = 8_202, "modify bucket", REST, false;
    /// A bucket was deleted.
    BucketDeleted = 8_203, "delete bucket", REST, false;
    /// The documents of a bucket were deleted.
    BucketFlushed = 8_204, "flush bucket", REST, false;
    /// The name of the cluster was changed.
    ClusterSettingsChanged = 8_209, "change cluster settings", REST, false;
    /// A server group was added.
    GroupAdded = 8_210, "add group", REST, false;
    /// A server group was deleted.
    GroupDeleted = 8_211, "delete group", REST, false;
    /// A server group was renamed, or nodes were given other groups.
    GroupUpdated = 8_212, "update group", REST, false;
    /// Automatic failovers were enabled, or their settings changed.
    AutoFailoverEnabled = 8_220, "enable auto failover", REST, false;
    /// Automatic failovers were disabled.
    AutoFailoverDisabled = 8_221, "disable auto failover", REST, false;
    /// The count of automatic failovers was reset.
    AutoFailoverCountReset = 8_222, "reset auto failover count", REST, false;
    /// The certificate of the node was made anew.
    CertificateRegenerated = 8_226, "regenerate certificate", REST, false;
    /// Certificates of authorities were loaded.
    AuthoritiesLoaded = 8_229, "upload cluster ca", REST, false;
    /// The certificate of the node was loaded again.
    CertificateReloaded = 8_230, "reload node certificate", REST, false;
    /// A user was created or changed.
    UserSet = 8_232, "set user", REST, false;
    /// The policy of passwords was changed.
    PasswordPolicyChanged = 8_235, "password policy", REST, false;
    /// The demand for client certificates was changed.
    ClientCertAuthChanged = 8_236, "client cert auth", REST, false;
    /// The settings of the audit log were changed.
    AuditSettingsChanged = 8_240, "configured audit daemon", REST, false;
    /// A group of users was created or changed.
    UserGroupSet = 8_244, "set user group", REST, false;
    /// A group of users was deleted.
    UserGroupDeleted = 8_245, "delete user group", REST, false;
    /// The settings of the directory were changed or removed.
    LdapSettingsChanged = 8_246, "modify ldap settings", REST, false;
    /// A user has logged out of the console.
    ManagementLoggedOut = 8_256, "logout success", REST, false;
    /// A DCP connection was opened.
    DcpOpened = 20_480, "opened DCP connection", KV, true;
    /// A login over a key-value port has failed.
    LoginFailed = 20_481, "authentication failed", KV, false;
    /// The user of a command lacks a privilege.
    Denied = 20_484, "command access failure", KV, false;
    /// A user has logged in over a key-value port.
    LoggedIn = 20_485, "authentication succeeded", KV, true;
    /// The user of a request to management lacks a privilege.
    ManagementDenied = OWN_IDS, "management access failure", OWN, false;
    /// A rebalance, drain or graceful failover was stopped.
    RebalanceStopped = OWN_IDS + 1, "rebalance stopped", OWN, true;
    /// A drain has begun.
    NodeDrained = OWN_IDS + 2, "node drain initiated", OWN, true;
    /// The settings of rebalances were changed.
    RebalanceSettingsChanged = OWN_IDS + 3, "modify rebalance settings", OWN, true;
    /// Another command for the cluster.
    ClusterCommand = OWN_IDS + 4, "cluster command", OWN, true;
    /// Scopes or collections of a bucket were created, changed or dropped.
    CollectionsChanged = OWN_IDS + 5, "modify collections", OWN, true;
    /// A compaction was started or stopped.
    CompactionCommand = OWN_IDS + 6, "compaction command", OWN, true;
    /// A role was defined or changed.
    RoleSet = OWN_IDS + 7, "set role", OWN, false;
    /// A role that was defined was deleted.
    RoleDeleted = OWN_IDS + 8, "delete role", OWN, false;
    /// The settings of tokens were changed or removed.
    JwtSettingsChanged = OWN_IDS + 9, "modify jwt settings", OWN, false;
}

impl EventKind {
    /// Returns the kind with this number.
    #[must_use]
    pub fn with_id(id: u32) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|kind| kind.descriptor().id == id)
    }

    /// Returns the number.
    #[must_use]
    pub fn id(self) -> u32 {
        self.descriptor().id
    }
}

/// Returns the line that reports lost events.
pub(super) fn lost_line(count: u64, unix_ms: u64) -> Vec<u8> {
    if count == 0 {
        return Vec::new();
    }
    let line = json!({
        "timestamp": iso_8601(unix_ms),
        "name": "audit events lost",
        "count": count,
    });
    let mut line = line.to_string().into_bytes();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_of_audit_events_are_unique_and_ascending() {
        let ids: Vec<u32> = EventKind::ALL.iter().map(|kind| kind.id()).collect();
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
        for kind in EventKind::ALL {
            let descriptor = kind.descriptor();
            assert_eq!(EventKind::with_id(descriptor.id), Some(*kind));
            assert_eq!(descriptor.id >= OWN_IDS, descriptor.module == OWN);
            assert!(descriptor.description.ends_with('.'), "{descriptor:?}");
        }
        assert_eq!(EventKind::with_id(1), None);
    }

    /// Failed logins and refusals are always in the log: nobody may hide an attack.
    #[test]
    fn failures_cannot_be_left_out() {
        let always: BTreeSet<u32> = EventKind::ALL
            .iter()
            .filter(|kind| !kind.descriptor().filterable)
            .map(|kind| kind.id())
            .collect();
        for kind in [
            EventKind::LoginFailed,
            EventKind::Denied,
            EventKind::ManagementLoginFailed,
            EventKind::ManagementDenied,
            EventKind::AuditSettingsChanged,
            EventKind::UserSet,
        ] {
            assert!(always.contains(&kind.id()), "{kind:?}");
        }
    }
}
