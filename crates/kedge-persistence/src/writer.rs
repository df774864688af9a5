//! The state of a writer, and the way to its task.

use kedge_executor::TaskId;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// A run is under way, or will come by itself.
pub(crate) const RUNNING: u8 = 0;
/// The task sleeps until the interval for changes that nobody waits for is over.
pub(crate) const TIMED: u8 = 1;
/// The task sleeps until something is written.
pub(crate) const IDLE: u8 = 2;
/// Something was written while the task fell asleep: the interval is to begin.
pub(crate) const INTERVAL_PENDING: u8 = 3;

/// How a writer is reached.
#[derive(Debug, Default)]
pub(crate) struct WriterState {
    pub(crate) task: OnceLock<TaskId>,
    pub(crate) state: AtomicU8,
    /// Someone waits for a sync.
    pub(crate) urgent: AtomicBool,
    /// With a log: a command was parked that waits for the disk, and nobody has requested since.
    has_new_waiters: AtomicBool,
}

impl WriterState {
    /// To be known before the task runs first.
    pub(crate) fn set_task(&self, task: TaskId) {
        // Tasks begin once.
        let _ = self.task.set(task);
    }

    /// A command that waits for the disk was parked, after its change was queued.
    pub(crate) fn note_waiter(&self) {
        // Whoever takes it away looks at what was queued before this look, too.
        if !self.has_new_waiters.load(Ordering::SeqCst) {
            self.has_new_waiters.store(true, Ordering::SeqCst);
        }
    }

    /// Whether a command waits for the disk of which nobody has told the log yet; the caller does.
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

    /// Moves from one state to another. False when it was in neither.
    pub(crate) fn change(&self, from: u8, to: u8) -> bool {
        self.state
            .compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }
}
