//! The groups of STAT about tasks and threads: `tasks`, `scheduler`, `runtimes`, `workload`, `threads` and
//! `worker_thread_info`, named as in Couchbase Server's `cbstats` (its documentation, "cbstats tasks", "scheduler", ...).

use kedge_bucket::Bucket;
use kedge_executor::{LatencyHistogram, Pool, PoolInfo, TaskInfo, TaskKindStats, TaskState};
use kedge_node::pools::{TaskPools, setting_name, snapshot, threads_text};
use serde_json::json;

use super::node_stats::{check_whole_node, may_see_bucket};
use crate::histogram::{self, HistogramFormat};
use crate::server_context::ServerContext;
use crate::session::Session;
use crate::stat_generator::{AddStat, StatGenerator};

/// `tasks`, `tasks-all`: every pool and every task, each as a JSON object, without tasks of buckets that the user may
/// not see. For `cbstats`, also an array of the tasks of the selected bucket, or of each owner with `all`, and the time
/// to which their times are relative.
pub(super) fn tasks(
    shared: &ServerContext,
    session: &Session,
    all: bool,
    each: AddStat<'_>,
) -> StatGenerator {
    let executor = shared.pools.executor();
    for pool in executor.pools() {
        each(&format!("pool:{}", pool.pool.name()), &pool_json(&pool));
    }
    let mut tasks = executor.tasks();
    tasks.retain(|task| is_for(shared, session, &task.owner));
    tasks.sort_by(|a, b| (&a.owner, a.kind, a.id).cmp(&(&b.owner, b.kind, b.id)));
    let selected = session
        .bucket
        .as_ref()
        .map(|bucket| bucket.name().to_owned());
    let shown =
        |owner: &str| all || bucket_of(owner).is_some_and(|it| Some(it) == selected.as_deref());
    let now_ns = shared.clock.mono_ns();
    for of_owner in tasks.chunk_by(|a, b| a.owner == b.owner) {
        if shown(&of_owner[0].owner) {
            table(of_owner, now_ns, each);
        }
    }
    StatGenerator::over(tasks, |task, each| {
        each(&format!("task:{}", task.id.get()), &task_json(&task));
    })
}

/// `scheduler`: time that tasks waited for a thread, by kind.
pub(super) fn scheduler(pools: &TaskPools, style: HistogramFormat, each: AddStat<'_>) {
    histograms(pools, style, |info| &info.queue_time, each);
}

/// `runtimes`: run time of tasks, by kind.
pub(super) fn runtimes(pools: &TaskPools, style: HistogramFormat, each: AddStat<'_>) {
    histograms(pools, style, |info| &info.run_time, each);
}

/// Resets the histograms of tasks, if the user has the privilege for the whole node, as they are about all buckets.
/// Returns true if it did.
pub(super) fn reset(shared: &ServerContext, session: &Session) -> bool {
    let may = check_whole_node(shared, session).is_ok();
    if may {
        shared.pools.executor().reset_stats();
    }
    may
}

/// `workload`: the threads, and the tasks that wait for them. `InQsize` counts tasks that snooze, `OutQsize` those that
/// are due.
pub(super) fn workload(shared: &ServerContext, bucket: &Bucket, each: AddStat<'_>) {
    let executor = shared.pools.executor();
    let tasks = executor.tasks();
    let pools = executor.pools();
    let mut tell = |name: &str, value: usize| {
        each(&format!("ep_workload:{name}"), &value.to_string());
    };
    for pool in &pools {
        tell(&format!("num_{}", names(pool.pool).0), pool.threads);
    }
    tell("num_shards", usize::from(bucket.config().shards()));
    tell("ready_tasks", pools.iter().map(|pool| pool.queued).sum());
    let sleepers = tasks.iter().filter(|task| is_asleep(task));
    tell("num_sleepers", sleepers.count());
    for pool in pools {
        let queue = format!("LowPrioQ_{}", names(pool.pool).1);
        let snoozing = tasks
            .iter()
            .filter(|it| it.pool == pool.pool && is_asleep(it));
        tell(&format!("{queue}:InQsize"), snoozing.count());
        tell(&format!("{queue}:OutQsize"), pool.queued);
    }
}

fn is_asleep(task: &TaskInfo) -> bool {
    matches!(task.state, TaskState::Snoozing(_))
}

/// Names of a pool's threads and of its queues.
const fn names(pool: Pool) -> (&'static str, &'static str) {
    match pool {
        Pool::Reader => ("readers", "Reader"),
        Pool::Writer => ("writers", "Writer"),
        Pool::AuxIo => ("auxio", "AuxIO"),
        Pool::NonIo => ("nonio", "NonIO"),
    }
}

/// `threads`: the threads of each pool and of the front end, as configured and as running.
pub(super) fn threads(shared: &ServerContext, each: AddStat<'_>) {
    let front_ends = shared.metrics.snapshot().threads.to_string();
    each("num_frontend_threads_configured", &front_ends);
    each("num_frontend_threads_actual", &front_ends);
    for info in shared.pools.executor().pools() {
        let name = setting_name(info.pool);
        let configured = threads_text(shared.pools.threads(info.pool));
        each(&format!("{name}_configured"), &configured);
        each(&format!("{name}_actual"), &info.threads.to_string());
    }
}

/// `worker_thread_info`: the counters of each front-end thread, as a JSON object.
pub(super) fn front_ends(shared: &ServerContext, each: AddStat<'_>) {
    for (thread, done) in shared.metrics.by_thread().enumerate() {
        let object = json!({
            "connections": done.connections,
            "commands": done.commands,
            "bytes_read": done.bytes_read,
            "bytes_written": done.bytes_written,
            "event_loop_turns": done.turns,
            "event_loop_spins": done.spins,
        });
        each(&format!("thread_{thread}"), &object.to_string());
    }
}

/// Shows a histogram for each kind of tasks, `KIND[POOL]`.
fn histograms(
    pools: &TaskPools,
    style: HistogramFormat,
    which: fn(&TaskKindStats) -> &LatencyHistogram,
    each: AddStat<'_>,
) {
    for info in pools.kinds() {
        let name = format!("{}[{}]", info.kind.name(), names(info.kind.pool()).1);
        histogram::tell(style, &name, &snapshot(which(&info)), each);
    }
}

/// The bucket of an owner of tasks.
fn bucket_of(owner: &str) -> Option<&str> {
    owner.strip_prefix("bucket:")
}

/// Shows the tasks of one owner in the format of `cbstats tasks`.
fn table(tasks: &[TaskInfo], now_ns: u64, each: AddStat<'_>) {
    let bucket = bucket_of(&tasks[0].owner).unwrap_or("No bucket");
    let rows: Vec<_> = tasks.iter().map(|task| row(task, bucket, now_ns)).collect();
    let rows = serde_json::Value::from(rows);
    each(&format!("ep_tasks:tasks:{bucket}"), &rows.to_string());
    each(&format!("ep_tasks:cur_time:{bucket}"), &now_ns.to_string());
}

fn row(task: &TaskInfo, bucket: &str, now_ns: u64) -> serde_json::Value {
    /// The time that the tool shows as "never".
    const NEVER_NS: u64 = 1 << 60;
    let ns = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(NEVER_NS);
    let (state, wakes_ns) = match task.state {
        TaskState::Running => ("RUNNING", now_ns),
        TaskState::Queued => ("SNOOZED", now_ns),
        TaskState::Snoozing(Some(left)) => ("SNOOZED", now_ns.saturating_add(ns(left))),
        TaskState::Snoozing(None) => ("SNOOZED", NEVER_NS),
    };
    let began_ns = task.runs_for.map(|time| now_ns.saturating_sub(ns(time)));
    json!({
        "tid": task.id.get(),
        "state": state,
        "name": task.kind,
        "this": format!("0x{:x}", task.id.get()),
        "bucket": bucket,
        "description": task.description,
        "priority": task.priority as u8,
        "waketime_ns": wakes_ns,
        "total_runtime_ns": ns(task.run_time),
        "last_starttime_ns": began_ns.unwrap_or(0),
        "previous_runtime_ns": ns(task.last_run),
        "num_runs": task.runs,
        "type": names(task.pool).1,
    })
}

fn is_for(shared: &ServerContext, session: &Session, owner: &str) -> bool {
    bucket_of(owner).is_none_or(|bucket| may_see_bucket(shared, session, bucket))
}

fn pool_json(pool: &PoolInfo) -> String {
    json!({ "threads": pool.threads, "idle": pool.idle, "queued": pool.queued }).to_string()
}

fn task_json(task: &TaskInfo) -> String {
    let (state, sleeps_us) = match task.state {
        TaskState::Queued => ("queued", None),
        TaskState::Running => ("running", None),
        TaskState::Snoozing(None) => ("sleeping", None),
        TaskState::Snoozing(Some(left)) => ("snoozing", Some(left.as_micros() as u64)),
    };
    json!({
        "id": task.id.get(),
        "owner": task.owner,
        "kind": task.kind,
        "pool": task.pool.name(),
        "priority": format!("{:?}", task.priority).to_lowercase(),
        "description": task.description,
        "state": state,
        "sleeps_us": sleeps_us,
        "runs": task.runs,
        "run_time_us": task.run_time.as_micros() as u64,
    })
    .to_string()
}
