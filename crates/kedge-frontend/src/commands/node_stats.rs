//! The groups of STAT about the node: connections, clients, buckets, limits, clocks and the audit log.

use kedge_auth::Privilege;
use kedge_bucket::Bucket;
use kedge_node::iso_8601;
use kedge_node::machine::process_memory;
use kedge_protocol::binary::ConnectionKind;
use kedge_types::Status;
use serde_json::json;

use super::memcached_stats;
use super::stat_lines::StatStep;
use crate::server_context::ServerContext;
use crate::session::{CommandFailure, Rights, Session};
use crate::stat_generator::{AddStat, StatGenerator};

/// Number of calls of the clock that are timed together.
const CLOCK_CALLS: u32 = 1_000;

/// Checks the privilege for groups about the node.
///
/// # Errors
/// `AccessDenied`.
pub(super) fn check_node(session: &Session) -> Result<(), CommandFailure> {
    if session.privileges.allow(Rights::STATS) {
        Ok(())
    } else {
        Err(Status::AccessDenied.into())
    }
}

/// `connections`: the number of connections, and the properties of this one.
pub(super) fn connections(shared: &ServerContext, session: &Session, each: AddStat<'_>) {
    let now = shared.metrics.snapshot();
    each("curr_connections", &now.curr_connections.to_string());
    each("max_connections", &now.max_connections.to_string());
    each("total_connections", &now.total_connections.to_string());
    each(
        "rejected_connections",
        &now.rejected_connections.to_string(),
    );
    for (thread, count) in shared.metrics.connections_by_thread().iter().enumerate() {
        each(&format!("thread_{thread}:connections"), &count.to_string());
    }
    each("this:peer", &session.peer.to_string());
    each("this:ssl", if session.is_tls() { "true" } else { "false" });
    each("this:user", session.login.user().unwrap_or_default());
    each("this:in_flight", &session.in_flight().to_string());
    each("this:features", &format!("{:?}", session.protocol.features));
}

/// `responses`: the number of replies with each status, in a line for each, and in one object by number for `cbstats`.
pub(super) fn responses(shared: &ServerContext, each: AddStat<'_>) {
    let mut by_number = serde_json::Map::new();
    for (status, count) in shared.metrics.responses() {
        by_number.insert(format!("{:x}", status.wire()), count.into());
        each(
            &format!("{:x}:{}", status.wire(), status.name()),
            &count.to_string(),
        );
    }
    let by_number = serde_json::Value::from(by_number);
    each("responses", &by_number.to_string());
}

/// `settings`: the limits of connections, under memcached's names where it has the same.
pub(super) fn settings(shared: &ServerContext, session: &Session, each: AddStat<'_>) {
    let limits = &shared.limits;
    let is_memcached = session.kind() == ConnectionKind::Memcached;
    let connections_max = if is_memcached {
        limits.memcached_share()
    } else {
        limits.connections_max
    };
    each("maxconns", &connections_max.to_string());
    each(
        "num_threads",
        &shared.metrics.snapshot().threads.to_string(),
    );
    each("idle_timeout", &limits.idle.as_secs().to_string());
    each(
        "item_size_max",
        &memcached_stats::item_bytes_max(shared, is_memcached).to_string(),
    );
    each("cas_enabled", "yes");
    each("flush_enabled", {
        let enabled = session
            .bucket
            .as_ref()
            .is_some_and(|bucket| bucket.config().flush_enabled);
        let enabled = enabled && (!is_memcached || shared.memcached.rules.flush_all);
        if enabled { "yes" } else { "no" }
    });
    if let Some(bucket) = &session.bucket {
        each("maxbytes", &bucket.config().quota_bytes.to_string());
    }
    if is_memcached {
        memcached_stats::settings(shared, each);
    }
    each("queued_bytes_max", &limits.queued_bytes_max.to_string());
    each("request_memory_max", &limits.request_memory_max.to_string());
    each(
        "unauthenticated_ms",
        &limits.unauthenticated.as_millis().to_string(),
    );
    each(
        "slow_sender_ms",
        &limits.slow_sender.as_millis().to_string(),
    );
    each("send_stall_ms", &limits.send_stall.as_millis().to_string());
}

/// Checks the privilege for statistics of the whole node, for groups that show other users, too.
///
/// # Errors
/// `AccessDenied`.
pub(super) fn check_whole_node(
    shared: &ServerContext,
    session: &Session,
) -> Result<(), CommandFailure> {
    let roles = session.login.roles(&shared.users.read());
    if roles.is_some_and(|roles| roles.allows(Privilege::Stats, None)) {
        Ok(())
    } else {
        Err(session.privileges.rights().denied(Rights::STATS))
    }
}

/// Returns true if the user may read the statistics of a bucket.
pub(super) fn may_see_bucket(shared: &ServerContext, session: &Session, bucket: &str) -> bool {
    match session.login.roles(&shared.users.read()) {
        Some(roles) => roles.allows(Privilege::Stats, Some(bucket)),
        None => session
            .bucket
            .as_ref()
            .is_some_and(|selected| selected.name() == bucket),
    }
}

/// `info`: the name and version of the server.
pub(super) fn info(each: AddStat<'_>) {
    each("info", concat!("Kedge ", env!("CARGO_PKG_VERSION")));
}

/// `clocks`: the cost of a call of the monotonic clock, and the time of both clocks.
pub(super) fn clocks(shared: &ServerContext, each: AddStat<'_>) {
    let began_ns = shared.clock.mono_ns();
    let ended_ns = (0..CLOCK_CALLS).fold(began_ns, |_, _| shared.clock.mono_ns());
    let now = shared.now();
    for (name, value) in [
        (
            "clock_fine_overhead_ns",
            (ended_ns - began_ns) / u64::from(CLOCK_CALLS),
        ),
        ("clock_measurement_period_ns", ended_ns - began_ns),
        ("clock_monotonic_ns", now.mono_ns),
        ("clock_wall_ns", now.unix_ns),
    ] {
        each(name, &value.to_string());
    }
}

/// `bucket_details`: the buckets that the user may see, or the one that the argument names, as a JSON object.
///
/// # Errors
/// `KeyNotFound` for a bucket that does not exist, or that the user may not see.
pub(super) fn bucket_details(
    shared: &ServerContext,
    session: &Session,
    argument: Option<&str>,
    each: AddStat<'_>,
) -> StatStep {
    let mut buckets = shared.registry.list();
    buckets.retain(|bucket| may_see_bucket(shared, session, bucket.name()));
    let Some(name) = argument else {
        let all: Vec<_> = buckets.iter().map(|bucket| bucket_json(bucket)).collect();
        each("bucket details", &json!({ "buckets": all }).to_string());
        return Ok(None);
    };
    let bucket = buckets.iter().find(|bucket| bucket.name() == name);
    let bucket = bucket.ok_or(CommandFailure::new(
        Status::KeyNotFound,
        "there is no such bucket",
    ))?;
    each(name, &bucket_json(bucket).to_string());
    Ok(None)
}

fn bucket_json(bucket: &Bucket) -> serde_json::Value {
    let config = bucket.config();
    json!({
        "name": bucket.name(),
        "uuid": config.uuid,
        "type": "couchstore",
        "state": if bucket.is_loading() { "loading" } else { "ready" },
        "vbuckets": bucket.vbuckets(),
        "quota_bytes": config.quota_bytes,
        "commit_log": config.commit_log,
    })
}

/// `client_connection_details`: connections by source address, each as a JSON object.
///
/// # Errors
/// `AccessDenied`.
pub(super) fn client_connections(shared: &ServerContext, session: &Session) -> StatStep {
    check_whole_node(shared, session)?;
    let all = shared.client_addresses.all();
    Ok(Some(StatGenerator::over(all, |(from, known), each| {
        let object = json!({
            "current": known.current,
            "total": known.total,
            "disconnect": known.total - known.current,
            "last_used": iso_8601(known.last_unix_secs * 1_000),
        });
        each(&from.to_string(), &object.to_string());
    })))
}

/// `allocator`: the memory of the process, in bytes, where the system reports it.
pub(super) fn allocator(each: AddStat<'_>) {
    if let Some(memory) = process_memory() {
        for (name, value) in [
            ("resident", memory.resident),
            ("resident_peak", memory.peak),
            ("mapped", memory.mapped),
        ] {
            each(name, &value.to_string());
        }
    }
}

/// `audit`: the state of the audit log, and the number of lost events.
///
/// # Errors
/// `AccessDenied`.
pub(super) fn audit(shared: &ServerContext, session: &Session, each: AddStat<'_>) -> StatStep {
    check_whole_node(shared, session)?;
    let audit = shared.users.audit();
    each("enabled", &audit.is_on().to_string());
    each("dropped_events", &audit.dropped().to_string());
    Ok(None)
}
