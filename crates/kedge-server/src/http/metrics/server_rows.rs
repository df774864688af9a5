//! The metrics of the server as a whole.

use super::Row;

/// Statistics of the server as a whole.
pub(in crate::http) const SERVER: &[Row] = &[
    (
        "uptime",
        "kedge_uptime_seconds",
        false,
        "Seconds since the server started",
    ),
    (
        "curr_connections",
        "kedge_connections",
        false,
        "Open connections of clients",
    ),
    (
        "total_connections",
        "kedge_connections_accepted",
        true,
        "Connections of clients that were accepted",
    ),
    (
        "rejected_connections",
        "kedge_connections_rejected",
        true,
        "Connections of clients that were refused at the limit",
    ),
    (
        "bytes_read",
        "kedge_received_bytes",
        true,
        "Bytes read from clients",
    ),
    (
        "bytes_written",
        "kedge_sent_bytes",
        true,
        "Bytes written to clients",
    ),
    (
        "max_connections",
        "kedge_connections_limit",
        false,
        "Limit of the number of connections of clients",
    ),
    (
        "timed_out_connections",
        "kedge_connections_timed_out",
        true,
        "Connections of clients that were closed by a time limit",
    ),
    (
        "malformed_connections",
        "kedge_connections_malformed",
        true,
        "Connections of clients that were closed for sending no valid request",
    ),
    (
        "cmd_total",
        "kedge_commands",
        true,
        "Commands that were executed",
    ),
    (
        "auth_cmds",
        "kedge_logins",
        true,
        "Logins that clients tried",
    ),
    (
        "auth_errors",
        "kedge_logins_failed",
        true,
        "Logins that were refused",
    ),
    (
        "dcp_connections",
        "kedge_dcp_connections",
        false,
        "Open DCP connections of clients and other nodes",
    ),
    (
        "dcp_streams",
        "kedge_dcp_streams",
        false,
        "Open DCP streams",
    ),
    (
        "dcp_unacked_bytes",
        "kedge_dcp_unacknowledged_bytes",
        false,
        "Bytes that DCP consumers with flow control have not acknowledged",
    ),
    (
        "replication_links",
        "kedge_replication_links",
        false,
        "Replication connections to other nodes that the cluster map asks for",
    ),
    (
        "replication_links_up",
        "kedge_replication_links_up",
        false,
        "Replication connections to other nodes that are open",
    ),
    (
        "replication_vbuckets",
        "kedge_replication_vbuckets",
        false,
        "vBuckets that replicate from other nodes according to the cluster map",
    ),
    (
        "replication_following",
        "kedge_replication_following",
        false,
        "vBuckets that replicate from other nodes now",
    ),
    (
        "replication_items_behind",
        "kedge_replication_items_behind",
        false,
        "Seqnos of the current replication snapshots that have not arrived",
    ),
    (
        "replication_connects",
        "kedge_replication_connects",
        true,
        "Replication connections to other nodes that were made",
    ),
    (
        "replication_failures",
        "kedge_replication_failures",
        true,
        "Replication connections to other nodes that failed or were lost",
    ),
    (
        "replication_items",
        "kedge_replication_items",
        true,
        "Changes received from other nodes by replication",
    ),
    (
        "replication_bytes",
        "kedge_replication_received_bytes",
        true,
        "Bytes received from other nodes by replication",
    ),
    (
        "replication_acks",
        "kedge_replication_acks",
        true,
        "Acknowledgements of SyncWrites sent to other nodes",
    ),
    (
        "replication_rollbacks",
        "kedge_replication_rollbacks",
        true,
        "Rollbacks of vBuckets to the history that other nodes share",
    ),
    (
        "replication_takeovers",
        "kedge_replication_takeovers",
        true,
        "vBuckets that were taken over from nodes that still ran",
    ),
];
