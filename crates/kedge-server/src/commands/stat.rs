//! STAT: groups of statistics. One reply per name and value, then an empty one.

use kedge_bucket::{Bucket, ScanOf, Timing, VbFigures};
use kedge_cluster::CLAIMED_VERSION;
use kedge_protocol::binary::commands::Stat;
use kedge_types::{Status, VbId};

use super::{Command, Done, collection_stats, dcp_stats, storage_stats, task_stats};
use crate::histogram;
use crate::session::{Failure, Rights, Session};
use crate::shared::Shared;

/// Where statistics go, a name and a value at a time.
pub(crate) type Each<'e> = &'e mut dyn FnMut(&str, &str);

pub(super) fn stat(command: &mut Command<'_, '_, '_>) -> Result<Done, Failure> {
    let wire = Stat::decode(command.request)?;
    let group = std::str::from_utf8(wire.group).map_err(|_| Status::Invalid)?;
    let (number, opaque) = (command.request.opcode, command.request.opaque);
    let out = command.out.buffer();
    let begin = out.len();
    let mut each = |name: &str, value: &str| {
        // An empty name would end the list.
        if !name.is_empty() {
            Stat::write_reply(number, opaque, name.as_bytes(), value.as_bytes(), out);
        }
    };
    let result = group_stats(command.session, command.turn.shared, group, &mut each);
    match result {
        Ok(()) => Stat::write_reply(number, opaque, b"", b"", out),
        Err(failure) => {
            out.truncate(begin);
            return Err(failure);
        }
    }
    Ok(Done::Replied)
}

/// One group, named as in the request: its name, then arguments behind spaces.
///
/// # Errors
/// `KeyNotFound` for a group that there is not, `NoBucket`, `AccessDenied`, `Invalid` for arguments that make no sense.
pub(crate) fn group_stats(
    session: &Session,
    shared: &Shared,
    group: &str,
    each: Each<'_>,
) -> Result<(), Failure> {
    let mut words = group.split_ascii_whitespace();
    let name = words.next().unwrap_or_default();
    let argument = words.next();
    let bucket = || session.bucket(Rights::STATS);
    match name {
        "" => {
            if session.bucket.is_some() {
                bucket()?;
            } else if !session.rights.allow(Rights::STATS) {
                return Err(Status::AccessDenied.into());
            }
            general(shared, session.bucket.as_deref(), each);
        }
        "timings" => timings(bucket()?, each),
        "vbucket" => vbuckets(bucket()?, argument, each, |figures, each| {
            each(&format!("vb_{}", figures.vb), state_name(figures));
        })?,
        "vbucket-seqno" => vbuckets(bucket()?, argument, each, vbucket_seqno)?,
        "vbucket-details" => {
            let bucket = bucket()?;
            vbuckets(bucket, argument, each, |figures, each| {
                vbucket_details(figures, each);
                storage_stats::vbucket_file(bucket, figures.vb, each);
            })?;
        }
        "diskinfo" => storage_stats::disk_info(bucket()?, argument, each)?,
        "kvstore" => storage_stats::kv_store(bucket()?, each),
        "compaction" => storage_stats::compaction(bucket()?, each),
        "dcp" => dcp_stats::connections(shared, bucket()?, each),
        "dcpagg" => dcp_stats::sums(shared, bucket()?, argument, each),
        "durability-monitor" => vbuckets(bucket()?, argument, each, dcp_stats::monitor)?,
        "vbucket-durability-state" => vbuckets(bucket()?, argument, each, dcp_stats::state)?,
        "range-scans" => range_scans(bucket()?, each),
        "collections" | "collections-byid" | "scopes" | "scopes-byid" => {
            collection_stats::group(session, name, argument, each)?;
        }
        "failovers" => vbuckets(bucket()?, argument, each, failovers)?,
        "config" => config(bucket()?, each),
        "memory" => memory(bucket()?, each),
        "uuid" => each("uuid", &bucket()?.config().uuid),
        "warmup" => bucket()?.warmup_stats(each),
        "connections" => connections(shared, session, each)?,
        "responses" => responses(shared, session, each)?,
        "settings" => settings(shared, session, each)?,
        "tasks" => {
            node(session)?;
            task_stats::tasks(shared, session, each);
        }
        "scheduler" => {
            node(session)?;
            task_stats::scheduler(&shared.pools, each);
        }
        "runtimes" => {
            node(session)?;
            task_stats::runtimes(&shared.pools, each);
        }
        // What memcached would tell of its slabs; there are none.
        "items" | "slabs" | "sizes" => {
            bucket()?;
        }
        "reset" => {
            session
                .bucket(Rights::STATS.and(Rights::FLUSH))?
                .reset_stats();
            task_stats::reset(shared, session);
        }
        _ => {
            return Err(Failure::new(
                Status::KeyNotFound,
                "there is no such group of statistics",
            ));
        }
    }
    Ok(())
}

/// The general statistics: of the server, and of a bucket if there is one.
pub(crate) fn general(shared: &Shared, bucket: Option<&Bucket>, each: Each<'_>) {
    each("pid", &std::process::id().to_string());
    each("time", &shared.now().unix_secs().to_string());
    each("version", CLAIMED_VERSION);
    each("pointer_size", &usize::BITS.to_string());
    shared.metrics.stats(each);
    shared.dcp.stats(each);
    shared.replicator.stats(each);
    let Some(bucket) = bucket else {
        return;
    };
    bucket.stats(&mut |name, value| {
        each(name, value);
        // The names under which memcached's own clients look for the same.
        match name {
            "mem_used" => each("bytes", value),
            "ep_max_size" => each("limit_maxbytes", value),
            _ => {}
        }
    });
}

fn timings(bucket: &Bucket, each: Each<'_>) {
    for timing in Timing::ALL {
        let snapshot = bucket.timings().snapshot(timing.name());
        if let Some(snapshot) = snapshot.filter(|snapshot| snapshot.count > 0) {
            each(timing.name(), &histogram::to_json(&snapshot));
        }
    }
}

/// All vBuckets, or the one that the argument names.
fn vbuckets(
    bucket: &Bucket,
    argument: Option<&str>,
    each: Each<'_>,
    show: impl Fn(&VbFigures, &mut dyn FnMut(&str, &str)),
) -> Result<(), Failure> {
    if let Some(argument) = argument {
        let number = argument.parse().map_err(|_| {
            Failure::new(
                Status::Invalid,
                "the argument must be the number of a vBucket",
            )
        })?;
        let figures = bucket
            .vbucket_figures(VbId(number))
            .ok_or(Status::NotMyVbucket)?;
        show(&figures, each);
        return Ok(());
    }
    for number in 0..bucket.vbuckets() {
        if let Some(figures) = bucket.vbucket_figures(VbId(number)) {
            show(&figures, each);
        }
    }
    Ok(())
}

pub(super) fn state_name(figures: &VbFigures) -> &'static str {
    use kedge_bucket::VbState::{Active, Dead, Pending, Replica};
    match figures.state {
        Active => "active",
        Replica => "replica",
        Pending => "pending",
        Dead => "dead",
    }
}

fn rows(vb: VbId, rows: &[(&str, u64)], each: Each<'_>) {
    for (name, value) in rows {
        each(&format!("vb_{vb}:{name}"), &value.to_string());
    }
}

fn vbucket_seqno(figures: &VbFigures, each: &mut dyn FnMut(&str, &str)) {
    let uuid = figures.failover.first().map_or(0, |(uuid, _)| uuid.get());
    let table = [
        ("abs_high_seqno", figures.high_seqno.get()),
        ("high_seqno", figures.high_seqno.get()),
        ("last_persisted_seqno", figures.persisted_seqno.get()),
        ("max_visible_seqno", figures.visible_seqno.get()),
        ("purge_seqno", figures.purge_seqno.get()),
        ("uuid", uuid),
    ];
    rows(figures.vb, &table, each);
}

fn vbucket_details(figures: &VbFigures, each: &mut dyn FnMut(&str, &str)) {
    let vb = figures.vb;
    each(&format!("vb_{vb}"), state_name(figures));
    let table = [
        ("num_items", figures.documents as u64),
        ("num_tombstones", figures.tombstones as u64),
        ("bytes", figures.bytes as u64),
        ("queue_size", figures.queued as u64),
        ("high_seqno", figures.high_seqno.get()),
        ("persisted_seqno", figures.persisted_seqno.get()),
        ("settled_seqno", figures.settled_seqno.get()),
        ("unsettled_items", figures.unsettled as u64),
        ("max_visible_seqno", figures.visible_seqno.get()),
        ("purge_seqno", figures.purge_seqno.get()),
        ("open_checkpoint_id", figures.checkpoint),
        (
            "high_prepared_seqno",
            figures.durability.high_prepared.get(),
        ),
        (
            "high_completed_seqno",
            figures.durability.high_completed.get(),
        ),
        ("num_prepared", figures.durability.tracked as u64),
        ("max_cas", figures.max_cas.get()),
        ("total_abs_drift", figures.drift.total_us),
        ("total_abs_drift_count", figures.drift.samples),
        ("drift_ahead_threshold_exceeded", figures.drift.ahead),
        ("drift_behind_threshold_exceeded", figures.drift.behind),
        ("num_expired", figures.expired),
        (
            "uuid",
            figures.failover.first().map_or(0, |(uuid, _)| uuid.get()),
        ),
    ];
    rows(vb, &table, each);
}

fn failovers(figures: &VbFigures, each: &mut dyn FnMut(&str, &str)) {
    let vb = figures.vb;
    each(
        &format!("vb_{vb}:num_entries"),
        &figures.failover.len().to_string(),
    );
    for (at, (uuid, seqno)) in figures.failover.iter().enumerate() {
        each(&format!("vb_{vb}:{at}:id"), &uuid.to_string());
        each(&format!("vb_{vb}:{at}:seq"), &seqno.to_string());
    }
}

fn config(bucket: &Bucket, each: Each<'_>) {
    let config = bucket.config();
    if let Ok(settings) = serde_json::to_value(&*config) {
        members("ep", &settings, each);
    }
}

/// The members of an object, those of objects in it under both names.
fn members(prefix: &str, value: &serde_json::Value, each: Each<'_>) {
    match value {
        serde_json::Value::Object(inner) => {
            for (name, value) in inner {
                members(&format!("{prefix}_{name}"), value, each);
            }
        }
        serde_json::Value::String(text) => each(prefix, text),
        other => each(prefix, &other.to_string()),
    }
}

fn memory(bucket: &Bucket, each: Each<'_>) {
    const WANTED: [&str; 5] = [
        "mem_used",
        "ep_max_size",
        "ep_mem_high_wat",
        "ep_mem_low_wat",
        "ep_checkpoint_memory",
    ];
    for (name, value) in bucket.figures() {
        if WANTED.contains(&name) {
            each(name, &value.to_string());
        }
    }
}

/// Groups about the node rather than a bucket.
fn node(session: &Session) -> Result<(), Failure> {
    if session.rights.allow(Rights::STATS) {
        Ok(())
    } else {
        Err(Status::AccessDenied.into())
    }
}

fn connections(shared: &Shared, session: &Session, each: Each<'_>) -> Result<(), Failure> {
    node(session)?;
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
    each("this:user", session.user.as_deref().unwrap_or_default());
    each("this:in_flight", &session.in_flight().to_string());
    each("this:features", &format!("{:?}", session.features));
    Ok(())
}

fn responses(shared: &Shared, session: &Session, each: Each<'_>) -> Result<(), Failure> {
    node(session)?;
    for (status, count) in shared.metrics.responses() {
        each(
            &format!("{:x}:{}", status.wire(), status.name()),
            &count.to_string(),
        );
    }
    Ok(())
}

/// The limits of connections, under the names that memcached gives them where it has the same.
fn settings(shared: &Shared, session: &Session, each: Each<'_>) -> Result<(), Failure> {
    node(session)?;
    let limits = &shared.limits;
    each("maxconns", &limits.connections_max.to_string());
    each(
        "num_threads",
        &shared.metrics.snapshot().threads.to_string(),
    );
    each("idle_timeout", &limits.idle.as_secs().to_string());
    each(
        "item_size_max",
        &kedge_types::limits::VALUE_BYTES_MAX.to_string(),
    );
    each("cas_enabled", "yes");
    each("flush_enabled", {
        let enabled = session
            .bucket
            .as_ref()
            .is_some_and(|bucket| bucket.config().flush_enabled);
        if enabled { "yes" } else { "no" }
    });
    if let Some(bucket) = &session.bucket {
        each("maxbytes", &bucket.config().quota_bytes.to_string());
    }
    each("queued_bytes_max", &limits.queued_bytes_max.to_string());
    each(
        "unauthenticated_ms",
        &limits.unauthenticated.as_millis().to_string(),
    );
    each(
        "slow_sender_ms",
        &limits.slow_sender.as_millis().to_string(),
    );
    each("send_stall_ms", &limits.send_stall.as_millis().to_string());
    Ok(())
}

/// The range scans that are open: a name of the vBucket and the scan for each of their figures.
fn range_scans(bucket: &Bucket, each: Each<'_>) {
    let scans = bucket.scan_figures();
    each("num_open", &scans.len().to_string());
    for scan in scans {
        let id: String = scan.id.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut tell =
            |what: &str, value: &str| each(&format!("vb_{}:{id}:{what}", scan.vb), value);
        let wanted = &scan.wanted;
        tell("name", &wanted.name);
        let kind = match wanted.of {
            ScanOf::Range { .. } => "range",
            ScanOf::Sample { .. } => "sampling",
        };
        tell("type", kind);
        tell("collection", &format!("{:x}", wanted.collection.get()));
        tell("key_only", if wanted.key_only { "true" } else { "false" });
        tell("state", if scan.is_busy { "continuing" } else { "idle" });
        tell("items", &scan.items.to_string());
        tell("bytes", &scan.bytes.to_string());
        tell("idle_ms", &scan.idle_ms.to_string());
    }
}
