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
        "Connections accepted",
    ),
    (
        "rejected_connections",
        "kedge_connections_rejected",
        true,
        "Connections refused at the limit",
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
        "Most connections at a time",
    ),
    (
        "timed_out_connections",
        "kedge_connections_timed_out",
        true,
        "Connections closed by a time limit",
    ),
    (
        "malformed_connections",
        "kedge_connections_malformed",
        true,
        "Connections closed for sending no request",
    ),
    ("cmd_total", "kedge_commands", true, "Commands executed"),
    ("auth_cmds", "kedge_logins", true, "Logins tried"),
    ("auth_errors", "kedge_logins_failed", true, "Logins refused"),
    (
        "dcp_connections",
        "kedge_dcp_connections",
        false,
        "Open DCP connections of clients and other nodes",
    ),
    ("dcp_streams", "kedge_dcp_streams", false, "Their streams"),
    (
        "dcp_unacked_bytes",
        "kedge_dcp_unacknowledged_bytes",
        false,
        "Bytes sent to consumers that have flow control and not acknowledged",
    ),
    (
        "replication_links",
        "kedge_replication_links",
        false,
        "Connections to other nodes that there are to be",
    ),
    (
        "replication_links_up",
        "kedge_replication_links_up",
        false,
        "Those of them that there are",
    ),
    (
        "replication_vbuckets",
        "kedge_replication_vbuckets",
        false,
        "vBuckets that are to follow others",
    ),
    (
        "replication_following",
        "kedge_replication_following",
        false,
        "Those of them that do",
    ),
    (
        "replication_items_behind",
        "kedge_replication_items_behind",
        false,
        "Seqnos of snapshots under way that have not come",
    ),
    (
        "replication_connects",
        "kedge_replication_connects",
        true,
        "Connections to other nodes that were made",
    ),
    (
        "replication_failures",
        "kedge_replication_failures",
        true,
        "Attempts at them that failed, and connections lost",
    ),
    (
        "replication_items",
        "kedge_replication_items",
        true,
        "Changes received from other nodes",
    ),
    (
        "replication_bytes",
        "kedge_replication_received_bytes",
        true,
        "Bytes received from other nodes",
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
        "Times that vBuckets went back to what they share with others",
    ),
    (
        "replication_takeovers",
        "kedge_replication_takeovers",
        true,
        "vBuckets that were taken over from nodes that run",
    ),
];
