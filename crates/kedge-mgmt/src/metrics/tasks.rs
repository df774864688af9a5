//! The metrics of the task pools.

use kedge_bucket::TimingSnapshot;
use kedge_executor::{PoolInfo, TaskKindStats};
use kedge_node::pools::{TaskPools, snapshot};
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::{encode_histogram, encode_value, metric_type};

/// A metric with one value for each pool or kind: name, true for a counter, help text, and value.
type TaskMetric<T> = (&'static str, bool, &'static str, fn(&T) -> u64);

/// Metrics of each pool.
const POOLS: &[TaskMetric<PoolInfo>] = &[
    (
        "kedge_pool_threads",
        false,
        "Threads that the task pool should have",
        |pool| pool.threads as u64,
    ),
    (
        "kedge_pool_idle_threads",
        false,
        "Threads of the task pool that have nothing to do",
        |pool| pool.idle as u64,
    ),
    (
        "kedge_pool_queued_tasks",
        false,
        "Tasks that are due and wait for a thread of the pool",
        |pool| pool.queued as u64,
    ),
];

/// Metrics of each kind of task.
const KINDS: &[TaskMetric<TaskKindStats>] = &[
    (
        "kedge_task_runs",
        true,
        "Runs of the tasks of a kind",
        |kind| kind.run_time.count,
    ),
    (
        "kedge_task_panics",
        true,
        "Runs of the tasks of a kind that panicked",
        |kind| kind.panics,
    ),
    (
        "kedge_task_slow_runs",
        true,
        "Runs of the tasks of a kind that took longer than the limit of the kind",
        |kind| kind.slow,
    ),
];

/// A histogram for each kind: name, help text, and values.
type TaskHistogram = (
    &'static str,
    &'static str,
    fn(&TaskKindStats) -> TimingSnapshot,
);

/// Histograms of each kind of task, in seconds.
const TIMES: &[TaskHistogram] = &[
    (
        "kedge_task_queue_seconds",
        "Time that due tasks waited for a thread",
        |kind| snapshot(&kind.queue_time),
    ),
    (
        "kedge_task_run_seconds",
        "Time that one run of a task took",
        |kind| snapshot(&kind.run_time),
    ),
];

/// The task pools at the time of the scrape.
#[derive(Debug)]
pub(super) struct TaskSample {
    pools: Vec<PoolInfo>,
    kinds: Vec<TaskKindStats>,
}

impl TaskSample {
    pub(super) fn take(pools: &TaskPools) -> Self {
        Self {
            pools: pools.executor().pools(),
            kinds: pools.executor().kinds(),
        }
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        for (name, grows, help, value) in POOLS {
            let mut family = encoder.encode_descriptor(name, help, None, metric_type(*grows))?;
            for pool in &self.pools {
                let labels = [("pool", pool.pool.name())];
                encode_value(family.encode_family(&labels)?, *grows, value(pool) as f64)?;
            }
        }
        for (name, grows, help, value) in KINDS {
            let mut family = encoder.encode_descriptor(name, help, None, metric_type(*grows))?;
            for info in &self.kinds {
                let labels = labels(info);
                encode_value(family.encode_family(&labels)?, *grows, value(info) as f64)?;
            }
        }
        for (name, help, snapshot) in TIMES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            for info in &self.kinds {
                let labels = labels(info);
                encode_histogram(&mut family.encode_family(&labels)?, &snapshot(info), 1e6)?;
            }
        }
        Ok(())
    }
}

fn labels(info: &TaskKindStats) -> [(&'static str, &'static str); 2] {
    [
        ("kind", info.kind.name()),
        ("pool", info.kind.pool().name()),
    ]
}
