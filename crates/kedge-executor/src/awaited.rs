//! Those who wait for a task's next run to begin.

use crate::TaskId;
use crate::promise::Promise;
use crate::sync::Mutex;
use std::sync::Arc;

/// Whether the run began.
pub(crate) type Beginning = Promise<bool>;

#[derive(Debug, Default)]
pub(crate) struct Awaited(Mutex<Vec<(TaskId, Arc<Beginning>)>>);

impl Awaited {
    /// Enters one who waits. To be called before the task is told that somebody does.
    pub(crate) fn enter(&self, id: TaskId) -> Arc<Beginning> {
        let beginning = Arc::new(Beginning::new());
        self.0.lock().push((id, beginning.clone()));
        beginning
    }

    /// Tells all who wait for that task.
    pub(crate) fn tell(&self, id: TaskId, began: bool) {
        let mut told = Vec::new();
        self.0.lock().retain(|(waits_for, beginning)| {
            let is_it = *waits_for == id;
            if is_it {
                told.push(beginning.clone());
            }
            !is_it
        });
        for beginning in told {
            beginning.keep(began);
        }
    }

    /// Takes back one who need not wait.
    pub(crate) fn leave(&self, beginning: &Arc<Beginning>) {
        self.0
            .lock()
            .retain(|(_, other)| !Arc::ptr_eq(other, beginning));
    }
}
