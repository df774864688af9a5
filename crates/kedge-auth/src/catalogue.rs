//! The table of roles: their names, where they can apply, and what they grant.
//!
//! Names and titles are those of Couchbase's management interface (its documentation of roles, 8.0, and the two names
//! that 7.6 had in place of `user_admin_...`), so that its SDKs and tools can assign and show them. Roles for services
//! that Kedge does not have can be assigned, are stored, and allow to connect: `services.rs`.

mod services;

use serde::Serialize;

use services::SERVICES;

use crate::privilege::{Privilege, Privileges};

/// The existing roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RoleKind {
    /// `admin`: everything.
    Admin,
    /// `ro_admin`: sees everything but documents.
    RoAdmin,
    /// `cluster_admin`: manages buckets and settings; neither users nor documents.
    ClusterAdmin,
    /// `security_admin`: manages users and groups.
    SecurityAdmin,
    /// `user_admin_local`: the same, without statistics.
    UserAdminLocal,
    /// `user_admin_external`: sees users and groups; there are no external users to manage.
    UserAdminExternal,
    /// `security_admin_local`: the combination of `security_admin` and `user_admin_local` before 8.0.
    SecurityAdminLocal,
    /// `security_admin_external`: the same for external users, of which there are none.
    SecurityAdminExternal,
    /// `backup_admin`: reads and restores all buckets.
    BackupAdmin,
    /// `replication_admin`: sees settings and statistics; there are no replications to other clusters to manage.
    ReplicationAdmin,
    /// `external_stats_reader`: reads the statistics of the node, `/metrics` among them.
    ExternalStatsReader,
    /// `ro_security_admin`: sees users and groups.
    RoSecurityAdmin,
    /// `bucket_admin[b]`: manages a bucket, but has no access to its documents.
    BucketAdmin,
    /// `scope_admin[b:s]`: manages scopes and collections.
    ScopeAdmin,
    /// `bucket_full_access[b]`: the rights that an application needs.
    BucketFullAccess,
    /// `data_reader[b:s:c]`.
    DataReader,
    /// `data_writer[b:s:c]`.
    DataWriter,
    /// `data_monitoring[b:s:c]`.
    DataMonitoring,
    /// `data_dcp_reader[b:s:c]`.
    DataDcpReader,
    /// `data_backup[b]`: reads and restores all of a bucket.
    DataBackup,
    /// `replication_target[b]`: writes documents that come from another cluster.
    ReplicationTarget,
    /// `mobile_sync_gateway[b]`: the rights that a gateway for mobile devices needs.
    MobileSyncGateway,
    /// A role for a service that Kedge does not have, by its name.
    Service(&'static str),
}

/// The parameters that a role takes in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Extent {
    /// None: the role applies to the node as such, and to no bucket.
    Node,
    /// None: the role applies everywhere.
    Cluster,
    /// A bucket.
    Bucket,
    /// A bucket, optionally with a scope.
    Scope,
    /// A bucket, optionally with a scope, optionally with a collection.
    Collection,
}

pub(crate) struct RoleSpec {
    pub(crate) kind: RoleKind,
    pub(crate) role: &'static str,
    pub(crate) extent: Extent,
    pub(crate) grants: Privileges,
    title: &'static str,
    description: &'static str,
}

const fn spec(
    kind: RoleKind,
    role: &'static str,
    extent: Extent,
    grants: &[Privilege],
    title: &'static str,
    description: &'static str,
) -> RoleSpec {
    RoleSpec {
        kind,
        role,
        extent,
        grants: Privileges::of(grants),
        title,
        description,
    }
}

static SPECS: [RoleSpec; 22] = {
    use Privilege::{
        Access, Buckets, Collections, Delete, Flush, Insert, Inspect, InspectUsers, Manage, Read,
        ReadSystem, Settings, Stats, Stream, Upsert, Users, WriteMeta, WriteSystem,
    };
    use RoleKind as R;
    const CLUSTER: Extent = Extent::Cluster;
    const BUCKET: Extent = Extent::Bucket;
    const COLLECTION: Extent = Extent::Collection;
    #[rustfmt::skip]
    let specs = [
        spec(R::Admin, "admin", CLUSTER, &Privilege::ALL,
            "Full Admin", "May do everything: documents, buckets, users and settings."),
        spec(R::RoAdmin, "ro_admin", CLUSTER, &[Access, Stats, Inspect, InspectUsers],
            "Read-Only Admin", "Sees all settings, users and statistics; changes nothing, reads no documents."),
        spec(R::ClusterAdmin, "cluster_admin", CLUSTER,
            &[Access, Stats, Flush, Manage, Collections, Inspect, Settings, Buckets],
            "Cluster Admin", "Manages buckets, nodes and settings; neither users nor documents."),
        spec(R::SecurityAdmin, "security_admin", CLUSTER, &[Access, Stats, Inspect, InspectUsers, Users],
            "Security Admin", "Manages users and groups, but for those that may do so themselves; sees settings and statistics."),
        spec(R::UserAdminLocal, "user_admin_local", CLUSTER, &[Access, InspectUsers, Users],
            "Local User Admin", "Manages users and groups, but for those that may do so themselves."),
        spec(R::RoSecurityAdmin, "ro_security_admin", CLUSTER, &[Access, Inspect, InspectUsers],
            "Read-Only Security Admin", "Sees settings, users and groups."),
        spec(R::BucketAdmin, "bucket_admin", BUCKET, &[Access, Stats, Flush, Manage, Collections],
            "Bucket Admin", "Manages one bucket; reads and writes no documents."),
        spec(R::ScopeAdmin, "scope_admin", Extent::Scope, &[Access, Collections],
            "Manage Scopes", "Makes and drops collections of a scope, or all scopes of a bucket."),
        spec(R::BucketFullAccess, "bucket_full_access", BUCKET,
            &[Access, Read, Insert, Upsert, Delete, WriteMeta, ReadSystem, WriteSystem, Stream, Stats, Flush],
            "Application Access", "Reads and writes all documents of one bucket, and may flush it."),
        spec(R::DataReader, "data_reader", COLLECTION, &[Access, Read, ReadSystem],
            "Data Reader", "Reads documents."),
        spec(R::DataWriter, "data_writer", COLLECTION, &[Access, Insert, Upsert, Delete, WriteSystem],
            "Data Writer", "Writes and deletes documents, but does not read them."),
        spec(R::DataMonitoring, "data_monitoring", COLLECTION, &[Access, Stats],
            "Data Monitor", "Reads statistics."),
        spec(R::DataDcpReader, "data_dcp_reader", COLLECTION, &[Access, Read, ReadSystem, Stream, Stats],
            "Data DCP Reader", "Follows the changes of documents, and reads them."),
        spec(R::DataBackup, "data_backup", BUCKET,
            &[Access, Read, Insert, Upsert, Delete, WriteMeta, ReadSystem, WriteSystem, Stream, Stats, Collections],
            "Data Backup & Restore", "Reads all of a bucket, and restores it: documents, scopes and collections."),
        spec(R::ReplicationTarget, "replication_target", BUCKET,
            &[Access, Read, Insert, Upsert, Delete, WriteMeta, ReadSystem, WriteSystem, Stats],
            "XDCR Inbound", "Writes documents as another cluster has them."),
        spec(R::MobileSyncGateway, "mobile_sync_gateway", BUCKET,
            &[Access, Read, Insert, Upsert, Delete, WriteMeta, ReadSystem, WriteSystem, Stream, Stats, Flush],
            "Sync Gateway", "Reads, follows and writes all documents of one bucket, their system attributes included."),
        spec(R::UserAdminExternal, "user_admin_external", CLUSTER, &[Access, InspectUsers],
            "External User Admin", "Sees users and groups; there are no users from elsewhere to manage."),
        spec(R::SecurityAdminLocal, "security_admin_local", CLUSTER, &[Access, Stats, Inspect, InspectUsers, Users],
            "Local User Security Admin", "The same as Security Admin, under the name of versions before 8.0."),
        spec(R::SecurityAdminExternal, "security_admin_external", CLUSTER, &[Access, Stats, Inspect, InspectUsers],
            "External User Security Admin", "Sees settings, statistics, users and groups; there are no users from elsewhere to manage."),
        spec(R::BackupAdmin, "backup_admin", CLUSTER,
            &[Access, Read, Insert, Upsert, Delete, WriteMeta, ReadSystem, WriteSystem, Stream, Stats, Manage, Collections, Inspect, Buckets],
            "Backup Full Admin", "Reads all buckets, and makes and restores them: documents, scopes and collections."),
        spec(R::ReplicationAdmin, "replication_admin", CLUSTER, &[Access, Stats, Inspect],
            "XDCR Admin", "Sees settings and statistics; there are no replications to other clusters to manage."),
        spec(R::ExternalStatsReader, "external_stats_reader", Extent::Node, &[Access, Stats],
            "External Stats Reader", "Reads the statistics of the node and the metrics of all buckets."),
    ];
    specs
};

/// Returns all rows: first roles of Kedge, then roles of other services.
pub(crate) fn specs() -> impl Iterator<Item = &'static RoleSpec> {
    SPECS.iter().chain(&SERVICES)
}

impl RoleKind {
    pub(crate) fn spec(self) -> &'static RoleSpec {
        specs()
            .find(|spec| spec.kind == self)
            .expect("every role is in the table")
    }

    /// Returns the name, as in `data_reader`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.spec().role
    }
}

/// A role as the management interface lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RoleInfo {
    /// The name, as in `data_reader`.
    pub role: &'static str,
    /// `*` if the role takes a bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket_name: Option<&'static str>,
    /// `*` if the role takes a scope.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope_name: Option<&'static str>,
    /// `*` if the role takes a collection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collection_name: Option<&'static str>,
    /// The display name.
    pub name: &'static str,
    /// The purpose of the role.
    pub desc: &'static str,
}

/// Returns all roles, for `GET /settings/rbac/roles`.
#[must_use]
pub fn roles_catalogue() -> Vec<RoleInfo> {
    let star = |given: bool| given.then_some("*");
    specs()
        .map(|spec| RoleInfo {
            role: spec.role,
            bucket_name: star(spec.extent >= Extent::Bucket),
            scope_name: star(spec.extent >= Extent::Scope),
            collection_name: star(spec.extent >= Extent::Collection),
            name: spec.title,
            desc: spec.description,
        })
        .collect()
}
