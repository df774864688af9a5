//! The continuation of a task after a run.

use std::time::Duration;

/// The continuation of a task after a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The task is complete and is dropped.
    Done,
    /// Run again, after the tasks that are due already.
    Again,
    /// Run again after this delay, or at the next wake if that is earlier. A wake during the run makes the next run due
    /// immediately.
    Snooze(Duration),
    /// Run again at the next wake. A wake during the run makes the next run due immediately.
    Sleep,
}
