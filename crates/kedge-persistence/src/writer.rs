//! The state of a writer, and the handle of its task.

use kedge_executor::TaskId;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// A run is in progress or scheduled.
pub(crate) const RUNNING: u8 = 0;
/// The task sleeps until the interval for changes that no command waits for is over.
pub(crate) const TIMED: u8 = 1;
/// The task sleeps until there is a change.
pub(crate) const IDLE: u8 = 2;
/// A change was made while the task was about to sleep, so the interval is to be started.
pub(crate) const INTERVAL_PENDING: u8 = 3;

/// The state of a writer, as seen by the threads that queue changes.
#[derive(Debug, Default)]
pub(crate) struct WriterState {
    pub(crate) task: OnceLock<TaskId>,
    pub(crate) state: AtomicU8,
    /// True if a command waits for a sync.
    pub(crate) urgent: AtomicBool,
    /// True if the task could not write its last batch.
    pub(crate) has_failed: AtomicBool,
    /// True if a command that waits for the log was parked and no commit has been requested since.
    has_new_waiters: AtomicBool,
}

impl WriterState {
    /// Sets the task, before its first run.
    pub(crate) fn set_task(&self, task: TaskId) {
        // Tasks are started once.
        let _ = self.task.set(task);
    }

    /// Notes that a command that waits for the disk was parked, after its change was queued.
    pub(crate) fn note_waiter(&self) {
        // The thread that clears the flag reads the queues afterwards, so it sees the change.
        if !self.has_new_waiters.load(Ordering::SeqCst) {
            self.has_new_waiters.store(true, Ordering::SeqCst);
        }
    }

    /// Returns whether commands wait for which no commit has been requested, and clears the flag. The caller requests
    /// the commit.
    pub(crate) fn take_waiters(&self) -> bool {
        self.has_new_waiters.load(Ordering::SeqCst)
            && self.has_new_waiters.swap(false, Ordering::SeqCst)
    }

    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent.load(Ordering::SeqCst)
    }

    pub(crate) fn set_state(&self, state: u8) {
        self.state.store(state, Ordering::SeqCst);
    }

    /// Changes the state from `from` to `to`. Returns false if it was not `from`.
    pub(crate) fn change(&self, from: u8, to: u8) -> bool {
        self.state
            .compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }
}
