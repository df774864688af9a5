//! The return of unused memory to the operating system after large requests.
//!
//! An allocator keeps what was freed for its next user. So without this task the process would keep the largest amount of
//! memory that incomplete requests ever had.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kedge_executor::{Executor, Next, ScheduleError, TaskContext, TaskId, TaskSpec};
use kedge_node::pools::TaskPools;

use crate::request_memory::RequestMemory;
use crate::tasks::MEMORY_RETURN;

/// Number of bytes that requests must have had, so that their return pays.
pub(crate) const RETURN_BYTES_MIN: usize = 32 << 20;
/// Time for which no request may have memory before it is returned. It bounds the cost under a stream of large requests.
const PAUSE: Duration = Duration::from_secs(1);

/// The task that returns memory.
#[derive(Debug)]
pub(crate) struct MemoryReturn {
    executor: Executor,
    task: TaskId,
    is_due: Arc<AtomicBool>,
}

impl MemoryReturn {
    /// Starts the task, which sleeps until [`Self::request`]. It calls `return_memory` and ends with the executor.
    ///
    /// # Errors
    /// [`ScheduleError`] after the executor's end.
    pub(crate) fn start(
        pools: &TaskPools,
        memory: Arc<RequestMemory>,
        return_memory: fn(),
    ) -> Result<Self, ScheduleError> {
        let spec = TaskSpec {
            description: "returns memory to the system after large requests".into(),
            first_run: None,
            ..TaskSpec::new(&MEMORY_RETURN, pools.owner())
        };
        let executor = pools.executor().clone();
        let is_due = Arc::new(AtomicBool::new(false));
        let due = is_due.clone();
        let mut has_paused = false;
        let task = executor.schedule(spec, move |_: &TaskContext<'_>| {
            has_paused = !has_paused;
            if has_paused {
                return Next::Snooze(PAUSE);
            }
            due.store(false, Ordering::SeqCst);
            if memory.begin_return() {
                return_memory();
            }
            Next::Sleep
        })?;
        Ok(Self {
            executor,
            task,
            is_due,
        })
    }

    /// Makes the task return memory soon, unless requests have some then.
    pub(crate) fn request(&self) {
        if !self.is_due.swap(true, Ordering::SeqCst) {
            self.executor.wake(self.task);
        }
    }
}
