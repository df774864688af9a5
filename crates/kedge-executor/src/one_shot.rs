//! Submitted closures, which run once and have a result.

use crate::error::{ScheduleError, TaskError};
use crate::next::Next;
use crate::promise::Promise;
use crate::sync::Mutex;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The result of a run.
pub(crate) enum RunOutcome {
    Next(Next),
    Panicked(String),
}

/// A submitted closure, which runs once.
pub(crate) trait RunOnce: Send + Sync {
    fn run(&self) -> RunOutcome;
    /// Drops the closure if it has not run, and reports the cancellation to the waiter.
    fn cancel(&self);
    /// Returns `true` if the closure has run or never will.
    fn is_over(&self) -> bool;
    /// Spins briefly until the closure is over. Returns `true` if it is.
    fn spin_until_over(&self) -> bool;
}

/// A closure and its result, in one allocation.
pub(crate) struct OneShot<F, T> {
    closure: Mutex<Option<F>>,
    promise: Promise<Result<T, TaskError>>,
}

impl<F, T> OneShot<F, T> {
    pub(crate) fn new(closure: F) -> Self {
        Self {
            closure: Mutex::new(Some(closure)),
            promise: Promise::new(),
        }
    }

    /// Drops a closure that the executor did not accept. If it was cancelled before, the waiter has received that error
    /// already.
    pub(crate) fn refuse(&self, refused: ScheduleError) {
        if self.closure.lock().take().is_some() {
            self.promise.set(Err(TaskError::NotScheduled(refused)));
        }
    }
}

impl<F: FnOnce() -> T + Send, T: Send> RunOnce for OneShot<F, T> {
    fn run(&self) -> RunOutcome {
        let Some(closure) = self.closure.lock().take() else {
            return RunOutcome::Next(Next::Done);
        };
        match catch_panic(closure) {
            Ok(value) => {
                self.promise.set(Ok(value));
                RunOutcome::Next(Next::Done)
            }
            Err(text) => {
                self.promise.set(Err(TaskError::Panicked(text.clone())));
                RunOutcome::Panicked(text)
            }
        }
    }

    fn cancel(&self) {
        let closure = self.closure.lock().take();
        if let Some(closure) = closure {
            // The waiter receives the result even if the closure's destructor panics.
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(closure)));
            self.promise.set(Err(TaskError::Cancelled));
            if let Err(panic) = dropped {
                std::panic::resume_unwind(panic);
            }
        }
    }

    fn is_over(&self) -> bool {
        self.promise.is_set()
    }

    fn spin_until_over(&self) -> bool {
        self.promise.look()
    }
}

/// Access to the result of a closure of any type.
pub(crate) trait HasResult<T>: Send + Sync {
    fn promise(&self) -> &Promise<Result<T, TaskError>>;
}

impl<F: Send, T: Send> HasResult<T> for OneShot<F, T> {
    fn promise(&self) -> &Promise<Result<T, TaskError>> {
        &self.promise
    }
}

/// Runs code that may panic. Returns the message of the panic as the error.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, String> {
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
    // The destructor of the payload may panic, too. The payload of that second panic is leaked.
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(another);
    }
    text
}
