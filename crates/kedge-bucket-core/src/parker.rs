//! Parked tasks, which sleep until there is work for them.

use kedge_executor::TaskId;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The sleep of a task that is woken when there is work.
///
/// A thread that adds work calls [`Parker::unpark`] afterwards; the task calls [`Parker::park`] and looks for work once
/// more. One of the two sees the other, so no work is missed.
#[derive(Debug, Default)]
pub struct Parker {
    task: OnceLock<TaskId>,
    asleep: AtomicBool,
}

impl Parker {
    /// Sets the task, before it runs for the first time.
    pub fn set_task(&self, task: TaskId) {
        // Tasks begin once.
        let _ = self.task.set(task);
    }

    /// Returns the task, unless it has not begun.
    #[must_use]
    pub fn task(&self) -> Option<TaskId> {
        self.task.get().copied()
    }

    /// Returns whether the task is parked.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::SeqCst)
    }

    /// Returns the task once for each time that it was parked: the caller makes it run.
    pub fn unpark(&self) -> Option<TaskId> {
        let was_asleep = self.is_asleep() && self.asleep.swap(false, Ordering::SeqCst);
        was_asleep.then(|| self.task()).flatten()
    }

    /// Parks the task: the next [`Parker::unpark`] makes it run.
    pub fn park(&self) {
        self.asleep.store(true, Ordering::SeqCst);
    }

    /// Revokes a [`Parker::park`]: the task found work, or runs by time.
    pub fn clear(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kedge_executor::{Next, Pool, Priority, TaskContext, TaskKind, TaskSpec};
    use std::time::Duration;

    static KIND: TaskKind =
        TaskKind::new("test", Pool::NonIo, Priority::Low, Duration::from_millis(1));

    #[test]
    fn a_parked_task_is_unparked_once() {
        let (executor, manual) = kedge_executor::ManualExecutor::new();
        let owner = executor.register("test").unwrap();
        let spec = TaskSpec {
            first_run: None,
            ..TaskSpec::new(&KIND, owner)
        };
        let task = executor
            .schedule(spec, |_: &TaskContext<'_>| Next::Sleep)
            .unwrap();
        let parker = Parker::default();
        parker.set_task(task);
        assert_eq!(parker.unpark(), None, "it is about to run");
        parker.park();
        assert_eq!(parker.unpark(), Some(task));
        assert_eq!(parker.unpark(), None);
        parker.park();
        parker.clear();
        assert_eq!(parker.unpark(), None);
        assert_eq!(manual.run_ready(), 0);
    }
}
