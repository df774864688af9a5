//! The groups of STAT about tasks: `tasks`, `scheduler` and `runtimes`, named as in Couchbase Server's `cbstats`
//! (its documentation, "cbstats tasks", "scheduler", "runtimes").

use kedge_auth::Privilege;
use kedge_executor::{Histogram, KindInfo, PoolInfo, TaskInfo, TaskState};
use serde_json::json;

use super::stat::Each;
use crate::histogram;
use crate::pools::{TaskPools, snapshot};
use crate::session::Session;
use crate::shared::Shared;

/// Every pool and every task, each as a JSON object. Tasks of buckets that the user knows nothing of are left out.
pub(super) fn tasks(shared: &Shared, session: &Session, each: Each<'_>) {
    let executor = shared.pools.executor();
    for pool in executor.pools() {
        each(&format!("pool:{}", pool.pool.name()), &pool_json(&pool));
    }
    let mut tasks = executor.tasks();
    tasks.retain(|task| is_for(shared, session, &task.owner));
    tasks.sort_by(|a, b| (&a.owner, a.kind, a.id).cmp(&(&b.owner, b.kind, b.id)));
    for task in tasks {
        each(&format!("task:{}", task.id.get()), &task_json(&task));
    }
}

/// How long tasks waited for a thread, by kind.
pub(super) fn scheduler(pools: &TaskPools, each: Each<'_>) {
    histograms(pools, |info| &info.queue_time, each);
}

/// How long tasks ran, by kind.
pub(super) fn runtimes(pools: &TaskPools, each: Each<'_>) {
    histograms(pools, |info| &info.run_time, each);
}

/// Sets the histograms of tasks to 0. They count for all buckets, so who has a right on one alone does not change them.
pub(super) fn reset(shared: &Shared, session: &Session) {
    let users = shared.users.read();
    let may = |user: &str| users.allows(user, Privilege::Stats, None);
    if session.user.as_deref().is_some_and(may) {
        shared.pools.executor().reset_stats();
    }
}

fn histograms(pools: &TaskPools, which: fn(&KindInfo) -> &Histogram, each: Each<'_>) {
    for info in pools.kinds() {
        let histogram = which(&info);
        if histogram.count > 0 {
            each(info.kind.name(), &histogram::to_json(&snapshot(histogram)));
        }
    }
}

fn is_for(shared: &Shared, session: &Session, owner: &str) -> bool {
    let Some(bucket) = owner.strip_prefix("bucket:") else {
        return true;
    };
    match &session.user {
        Some(user) => {
            let users = shared.users.read();
            users.allows(user, Privilege::Stats, Some(bucket))
        }
        None => session
            .bucket
            .as_ref()
            .is_some_and(|selected| selected.name() == bucket),
    }
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
