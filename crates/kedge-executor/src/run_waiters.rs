//! Callers that wait for the next run of a task to begin.

use crate::TaskId;
use crate::promise::Promise;
use crate::sync::Mutex;
use std::sync::Arc;

/// A promise of `true` if the run began, and `false` if the task ended first.
pub(crate) type RunStarted = Promise<bool>;

#[derive(Debug, Default)]
pub(crate) struct RunWaiters(Mutex<Vec<(TaskId, Arc<RunStarted>)>>);

impl RunWaiters {
    /// Registers a waiter. Callers do so before they set the task's `AWAITED` flag.
    pub(crate) fn add(&self, id: TaskId) -> Arc<RunStarted> {
        let beginning = Arc::new(RunStarted::new());
        self.0.lock().push((id, beginning.clone()));
        beginning
    }

    /// Completes the promises of all waiters of a task.
    pub(crate) fn notify(&self, id: TaskId, has_begun: bool) {
        let mut ended_waits = Vec::new();
        self.0.lock().retain(|(waits_for, beginning)| {
            let is_it = *waits_for == id;
            if is_it {
                ended_waits.push(beginning.clone());
            }
            !is_it
        });
        for beginning in ended_waits {
            beginning.set(has_begun);
        }
    }

    /// Removes a waiter whose task is gone.
    pub(crate) fn remove(&self, beginning: &Arc<RunStarted>) {
        self.0
            .lock()
            .retain(|(_, other)| !Arc::ptr_eq(other, beginning));
    }
}
