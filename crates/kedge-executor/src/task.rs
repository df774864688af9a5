//! The executable part of a task.

use crate::context::TaskContext;
use crate::next::Next;
use crate::one_shot::{RunOnce, RunOutcome, catch_panic};
use std::fmt;
use std::sync::Arc;

/// Work that the executor runs, possibly many times. Every `FnMut(&TaskContext<'_>) -> Next` implements it.
///
/// A task is dropped after its last run or after its cancellation, on a thread of its pool. The executor holds no lock
/// then, so the destructor may schedule, wake and cancel.
pub trait Task: Send {
    /// Runs once. The executor never runs a task on two threads at the same time.
    fn run(&mut self, context: &TaskContext<'_>) -> Next;
}

impl<F: FnMut(&TaskContext<'_>) -> Next + Send> Task for F {
    fn run(&mut self, context: &TaskContext<'_>) -> Next {
        self(context)
    }
}

/// The executable part of a task: repeated or one-shot.
pub(crate) enum Runnable {
    Task(Box<dyn Task>),
    RunOnce(Arc<dyn RunOnce>),
}

impl fmt::Debug for Runnable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Task(_) => "Task",
            Self::RunOnce(_) => "Job",
        })
    }
}

impl Runnable {
    /// Runs once. Returns a repeated task for its next run, but no closure.
    pub(crate) fn run(self, context: &TaskContext<'_>) -> (RunOutcome, Option<Self>) {
        match self {
            Self::Task(mut task) => {
                let outcome = catch_panic(|| task.run(context))
                    .map_or_else(RunOutcome::Panicked, RunOutcome::Next);
                (outcome, Some(Self::Task(task)))
            }
            Self::RunOnce(job) => {
                // A result without a receiver is dropped here, and the receiver may be the waker of a future; both may
                // panic.
                let outcome = catch_panic(move || job.run());
                (outcome.unwrap_or_else(RunOutcome::Panicked), None)
            }
        }
    }

    /// Drops a task that will not run again. Returns the message of a panic in its destructor.
    pub(crate) fn dispose(self) -> Option<String> {
        catch_panic(|| match self {
            Self::Task(task) => drop(task),
            Self::RunOnce(job) => job.cancel(),
        })
        .err()
    }
}
