//! Flushes of memcached clients with a delay (`flush_all 10`).
//!
//! At most one is pending: a later command replaces it, and a flush without a delay cancels it, as in memcached, which
//! has one time for both. It lives in memory: a restart forgets it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use kedge_bucket::{Bucket, Ctx};
use kedge_executor::{Executor, Next, ScheduleError, TaskContext, TaskId, TaskSpec};
use kedge_node::pools::TaskPools;
use kedge_sync::{RankedMutex, ranks::PendingFlush};
use kedge_types::{Clock as _, Status, SystemClock};

use crate::tasks::DELAYED_FLUSH;

/// Longest sleep of the task, which is the time that it may take to notice a change of the wall clock.
const SLEEP_MAX: Duration = Duration::from_secs(60);

struct DelayedFlushTime {
    bucket: Weak<Bucket>,
    /// The time of the flush, seconds since 1970.
    at_secs: u64,
}

/// The pending flush, and the task that waits for its time.
pub(crate) struct DelayedFlush {
    pending: Arc<RankedMutex<PendingFlush, Option<DelayedFlushTime>>>,
    executor: Executor,
    task: TaskId,
}

impl DelayedFlush {
    /// Starts the task, which sleeps while nothing is pending. It ends with the executor.
    ///
    /// # Errors
    /// [`ScheduleError`] after the executor's end.
    pub(crate) fn start(
        pools: &TaskPools,
        clock: &Arc<SystemClock>,
    ) -> Result<Self, ScheduleError> {
        let pending = Arc::new(RankedMutex::new(None));
        let spec = TaskSpec {
            description: "empties a bucket when a delayed flush_all is due".into(),
            first_run: None,
            ..TaskSpec::new(&DELAYED_FLUSH, pools.owner())
        };
        let executor = pools.executor().clone();
        let (waits, clock) = (pending.clone(), clock.clone());
        let task = executor.schedule(spec, move |_: &TaskContext<'_>| run(&waits, &clock))?;
        Ok(Self {
            pending,
            executor,
            task,
        })
    }

    /// Schedules the flush of the bucket, in place of the one that is pending.
    ///
    /// # Errors
    /// `NotSupported` for a bucket without `flush_enabled`; `TemporaryFailure` while the server stops.
    pub(crate) fn plan(&self, bucket: &Arc<Bucket>, at_secs: u64) -> Result<(), Status> {
        if !bucket.config().flush_enabled {
            return Err(Status::NotSupported);
        }
        *self.pending.lock() = Some(DelayedFlushTime {
            bucket: Arc::downgrade(bucket),
            at_secs,
        });
        if self.executor.wake(self.task) {
            Ok(())
        } else {
            Err(Status::TemporaryFailure)
        }
    }

    /// Cancels the pending flush.
    pub(crate) fn cancel(&self) {
        *self.pending.lock() = None;
    }
}

fn run(pending: &RankedMutex<PendingFlush, Option<DelayedFlushTime>>, clock: &SystemClock) -> Next {
    let due = {
        let mut pending = pending.lock();
        let Some(next) = pending.as_ref() else {
            return Next::Sleep;
        };
        let at_ns = next.at_secs.saturating_mul(1_000_000_000);
        let left_ns = at_ns.saturating_sub(clock.now().unix_ns);
        if left_ns > 0 {
            return Next::Snooze(Duration::from_nanos(left_ns).min(SLEEP_MAX));
        }
        pending.take()
    };
    if let Some(bucket) = due.and_then(|due| due.bucket.upgrade()) {
        let ctx = Ctx {
            now: clock.now(),
            thread: 0,
        };
        let name = bucket.name().to_owned();
        let begun = bucket.begin_flush_all(ctx, move |result| match result {
            Ok(()) => tracing::info!(bucket = name, "a delayed flush_all emptied the bucket"),
            Err(status) => {
                tracing::error!(bucket = name, ?status, "a delayed flush_all failed");
            }
        });
        if let Err(status) = begun {
            let bucket = bucket.name();
            tracing::error!(
                bucket,
                ?status,
                "a delayed flush_all is not allowed any more"
            );
        }
    }
    Next::Sleep
}
