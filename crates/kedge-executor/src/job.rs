//! What a task does: many runs of a [`Task`], or one of a closure whose result someone waits for.

use crate::TaskId;
use crate::context::Context;
use crate::error::{Ended, Refused};
use crate::executor::Executor;
use crate::promise::Promise;
use crate::sync::Mutex;
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Work that is scheduled, and may run more than once. A closure `FnMut(&Context<'_>) -> Next` is one.
///
/// It is dropped after its last run, or when it is cancelled, by the thread that ran it or would have run it, with no
/// lock of the executor held: its destructor may schedule, wake and cancel.
pub trait Task: Send {
    /// Runs once. Never called on two threads at a time.
    fn run(&mut self, context: &Context<'_>) -> Next;
}

impl<F: FnMut(&Context<'_>) -> Next + Send> Task for F {
    fn run(&mut self, context: &Context<'_>) -> Next {
        self(context)
    }
}

/// What is to follow a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing: the task is dropped.
    Done,
    /// Another run as soon as those have run that are due before it.
    Again,
    /// Another run when this time is over, or at a wake if that is earlier. If the task was woken during this run,
    /// that is at once.
    Snooze(Duration),
    /// Another run at a wake. If the task was woken during this run, that is at once.
    Sleep,
}

/// The two shapes that a task has inside.
pub(crate) enum Body {
    Task(Box<dyn Task>),
    Job(Arc<dyn Job>),
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Task(_) => "Task",
            Self::Job(_) => "Job",
        })
    }
}

/// How a run went.
pub(crate) enum Outcome {
    Next(Next),
    Panicked(String),
}

impl Body {
    /// Runs once. A closure is gone then, a task is given back.
    pub(crate) fn run(self, context: &Context<'_>) -> (Outcome, Option<Self>) {
        match self {
            Self::Task(mut task) => {
                let outcome =
                    caught(|| task.run(context)).map_or_else(Outcome::Panicked, Outcome::Next);
                (outcome, Some(Self::Task(task)))
            }
            Self::Job(job) => {
                // A result that nobody waits for is dropped here, and who waits may be a future's waker.
                let outcome = caught(move || job.run());
                (outcome.unwrap_or_else(Outcome::Panicked), None)
            }
        }
    }

    /// Lets go of a task that will not run again.
    pub(crate) fn dispose(self) -> Option<String> {
        caught(|| match self {
            Self::Task(task) => drop(task),
            Self::Job(job) => job.cancel(),
        })
        .err()
    }
}

/// Does what may panic; then the panic's text is the error.
fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(panic_text)
}

fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let text = if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "no text".to_owned()
    };
    // What it carries may panic when it is dropped. What that one carries is left alone.
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(another);
    }
    text
}

/// A closure that runs once.
pub(crate) trait Job: Send + Sync {
    fn run(&self) -> Outcome;
    /// Drops the closure if it has not run; who waits hears of it.
    fn cancel(&self);
    /// Whether it has run, or never will.
    fn is_over(&self) -> bool;
    /// Waits for its end for a moment, without sleeping. Returns whether it is over.
    fn look_for_end(&self) -> bool;
}

/// The closure and the place of its result, in one allocation.
pub(crate) struct Shot<F, T> {
    closure: Mutex<Option<F>>,
    promise: Promise<Result<T, Ended>>,
}

impl<F, T> Shot<F, T> {
    pub(crate) fn new(closure: F) -> Self {
        Self {
            closure: Mutex::new(Some(closure)),
            promise: Promise::new(),
        }
    }

    /// It was not taken. If it was cancelled before, who waits knows already.
    pub(crate) fn refuse(&self, refused: Refused) {
        if self.closure.lock().take().is_some() {
            self.promise.keep(Err(Ended::Refused(refused)));
        }
    }
}

impl<F: FnOnce() -> T + Send, T: Send> Job for Shot<F, T> {
    fn run(&self) -> Outcome {
        let Some(closure) = self.closure.lock().take() else {
            return Outcome::Next(Next::Done);
        };
        match caught(closure) {
            Ok(value) => {
                self.promise.keep(Ok(value));
                Outcome::Next(Next::Done)
            }
            Err(text) => {
                self.promise.keep(Err(Ended::Panicked(text.clone())));
                Outcome::Panicked(text)
            }
        }
    }

    fn cancel(&self) {
        let closure = self.closure.lock().take();
        if let Some(closure) = closure {
            // Who waits is told even if the closure's destructor panics.
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(closure)));
            self.promise.keep(Err(Ended::Cancelled));
            if let Err(panic) = dropped {
                std::panic::resume_unwind(panic);
            }
        }
    }

    fn is_over(&self) -> bool {
        self.promise.is_kept()
    }

    fn look_for_end(&self) -> bool {
        self.promise.look()
    }
}

/// Where the result of a closure of any type will be.
pub(crate) trait Promised<T>: Send + Sync {
    fn promise(&self) -> &Promise<Result<T, Ended>>;
}

impl<F: Send, T: Send> Promised<T> for Shot<F, T> {
    fn promise(&self) -> &Promise<Result<T, Ended>> {
        &self.promise
    }
}

/// The result of a closure that was submitted. Wait for it on a thread, or await it as a future. Dropping it changes
/// nothing: the closure runs all the same.
///
/// ```
/// use kedge_executor::{Config, Executor, Pool};
///
/// let executor = Executor::new(Config::default())?;
/// let sum = executor.submit(Pool::NonIo, || 1 + 1);
/// assert_eq!(sum.wait(), Ok(2));
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "the result comes through this; cancel or drop it on purpose"]
pub struct Handle<T> {
    pub(crate) shot: Arc<dyn Promised<T>>,
    /// None if it was refused.
    pub(crate) id: Option<TaskId>,
    /// Its kind usually runs for so short a time that waiting without sleeping pays.
    pub(crate) soon: bool,
    /// Of a manual executor, whose work the waiting thread does.
    pub(crate) manual: Option<Executor>,
}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("id", &self.id).finish()
    }
}

impl<T> Handle<T> {
    /// The id of the task, to cancel it. None if it was refused.
    #[must_use]
    pub fn id(&self) -> Option<TaskId> {
        self.id
    }

    /// Whether the result is there, or never will be.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.shot.promise().is_kept()
    }

    /// Waits for the result. On a manual executor the calling thread does the pools' work meanwhile.
    ///
    /// # Errors
    /// Why there is none, see [`Ended`].
    pub fn wait(self) -> Result<T, Ended> {
        let promise = self.shot.promise();
        if let Some(executor) = &self.manual {
            executor.drive_until(|| promise.is_kept());
        }
        promise.wait(self.soon)
    }
}

impl<T> Future for Handle<T> {
    type Output = Result<T, Ended>;

    fn poll(self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        self.shot.promise().poll(context.waker())
    }
}
