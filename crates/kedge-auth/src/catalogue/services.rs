//! Roles for services that Kedge does not have: query, index, search, analytics, eventing, views, gateways for mobile
//! devices.
//!
//! Tools and SDKs assign them to users who need them elsewhere, and expect to read back what they assigned.

use super::{Extent, RoleKind, RoleSpec, spec};
use crate::privilege::Privilege;

/// A row: name, extent, title, and purpose elsewhere.
macro_rules! service {
    ($name:literal, $extent:ident, $title:literal, $purpose:literal) => {
        spec(
            RoleKind::Service($name),
            $name,
            Extent::$extent,
            &[Privilege::Access],
            $title,
            concat!(
                $purpose,
                " This server has no such service: the role only lets its users connect."
            ),
        )
    };
}

#[rustfmt::skip]
pub(super) static SERVICES: [RoleSpec; 36] = [
    service!("eventing_admin", Node, "Eventing Full Admin",
        "Manages all functions that react to changes of documents."),
    service!("eventing_manage_functions", Scope, "Manage Scope Eventing Functions",
        "Manages the functions of a scope that react to changes of documents."),
    service!("views_admin", Bucket, "Views Admin",
        "Makes, changes and drops views of a bucket."),
    service!("views_reader", Bucket, "Views Reader",
        "Reads views of a bucket."),
    service!("query_system_catalog", Node, "Query System Catalog",
        "Queries the tables of the system, such as lists of indexes and of queries that run."),
    service!("query_manage_system_catalog", Node, "Query Manage System Catalog",
        "Manages the tables of the system that reports of the query load use."),
    service!("query_external_access", Node, "Query CURL Access",
        "Fetches documents of other hosts in queries."),
    service!("query_manage_global_functions", Node, "Manage Global Functions",
        "Makes and drops query functions for the whole cluster."),
    service!("query_execute_global_functions", Node, "Execute Global Functions",
        "Calls query functions of the whole cluster."),
    service!("query_manage_global_external_functions", Node, "Manage Global External Functions",
        "Makes and drops functions in other languages for the whole cluster."),
    service!("query_execute_global_external_functions", Node, "Execute Global External Functions",
        "Calls functions in other languages of the whole cluster."),
    service!("query_manage_functions", Scope, "Manage Scope Functions",
        "Makes and drops query functions of a scope."),
    service!("query_execute_functions", Scope, "Execute Scope Functions",
        "Calls query functions of a scope."),
    service!("query_manage_external_functions", Scope, "Manage Scope External Functions",
        "Makes and drops functions in other languages of a scope."),
    service!("query_execute_external_functions", Scope, "Execute Scope External Functions",
        "Calls functions in other languages of a scope."),
    service!("query_manage_sequences", Scope, "Manage Sequences",
        "Makes, changes and drops sequences of a scope."),
    service!("query_use_sequences", Scope, "Use Sequences",
        "Takes numbers of a scope's sequences in queries."),
    service!("query_select", Collection, "Query Select",
        "Runs SELECT statements."),
    service!("query_update", Collection, "Query Update",
        "Runs UPDATE statements."),
    service!("query_insert", Collection, "Query Insert",
        "Runs INSERT statements."),
    service!("query_delete", Collection, "Query Delete",
        "Runs DELETE statements."),
    service!("query_manage_index", Collection, "Query Manage Index",
        "Makes, builds and drops indexes."),
    service!("query_list_index", Collection, "Query List Index",
        "Lists indexes."),
    service!("query_use_sequential_scans", Collection, "Query Use Sequential Scans",
        "Runs queries that no index supports."),
    service!("fts_admin", Bucket, "Search Admin",
        "Manages the search indexes of a bucket."),
    service!("fts_searcher", Collection, "Search Reader",
        "Searches by text."),
    service!("analytics_reader", Node, "Analytics Reader",
        "Runs analytical queries on all data sets."),
    service!("analytics_admin", Node, "Analytics Admin",
        "Manages the links and data sets of analytical queries."),
    service!("analytics_manager", Bucket, "Analytics Manager",
        "Manages and queries the analytical data sets of a bucket."),
    service!("analytics_select", Collection, "Analytics Select",
        "Runs analytical queries on some data sets."),
    service!("sync_gateway_dev_ops", Node, "Sync Gateway Dev Ops",
        "Operates gateways for mobile devices and sees their metrics."),
    service!("sync_gateway_configurator", Collection, "Sync Gateway Architect",
        "Manages databases, users and roles of a gateway for mobile devices."),
    service!("sync_gateway_app", Collection, "Sync Gateway Application",
        "Manages users and roles of a gateway for mobile devices, and uses its documents through it."),
    service!("sync_gateway_app_ro", Collection, "Sync Gateway Application Read Only",
        "Sees users, roles and documents of a gateway for mobile devices through it."),
    service!("sync_gateway_replicator", Collection, "Sync Gateway Replicator",
        "Manages the replications of a gateway for mobile devices."),
    service!("application_telemetry_writer", Node, "Application Telemetry Writer",
        "Reports telemetry of applications."),
];
