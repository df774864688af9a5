//! Submission of closures, and the handles of their results.

use crate::TaskId;
use crate::config::TaskSpec;
use crate::error::TaskError;
use crate::executor::Executor;
use crate::kind::{CLOSURES, Pool, TaskKind};
use crate::one_shot::{HasResult, OneShot};
use crate::owners::OwnerId;
use crate::submit_spin::spin_for_result;
use crate::task::Runnable;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

impl Executor {
    /// Runs a closure once on a pool. [`Executor::submit_as`] also takes a kind and an owner.
    ///
    /// The call may spin for up to about 6 us until the closure has run. It does so if the calling thread has waited
    /// for each result so far, and closures of the kind take less than 5 us on average. Such a caller need not sleep,
    /// whatever primitive it waits with. After 512 results without a sleep it sleeps for 50 us if other threads
    /// submit closures to the pool, so that they get their share of the processors.
    pub fn submit<T: Send + 'static>(
        &self,
        pool: Pool,
        closure: impl FnOnce() -> T + Send + 'static,
    ) -> TaskHandle<T> {
        self.submit_as(&CLOSURES[pool as usize], self.inner.common, closure)
    }

    /// Runs a closure once, as a task of this kind and owner. If the executor does not accept the closure, the handle
    /// returns the error.
    pub fn submit_as<T: Send + 'static>(
        &self,
        kind: &'static TaskKind,
        owner: OwnerId,
        closure: impl FnOnce() -> T + Send + 'static,
    ) -> TaskHandle<T> {
        let closure = Arc::new(OneShot::new(closure));
        let added = self.inner.add(
            TaskSpec::new(kind, owner),
            Runnable::RunOnce(closure.clone()),
        );
        if let Err(refused) = added {
            closure.refuse(refused);
        }
        let is_quick = self.inner.kinds.enter(kind).1.is_quick();
        let pool = &self.inner.pools[kind.pool() as usize];
        let has_looked = is_quick && !self.is_manual() && spin_for_result(pool, &closure);
        TaskHandle {
            closure,
            id: added.ok(),
            soon: is_quick && !has_looked,
            manual: self.is_manual().then(|| Self::unguarded(&self.inner)),
        }
    }
}

/// The result of a submitted closure: wait for it on a thread, or await it as a future. Dropping the handle does not
/// cancel the closure.
///
/// ```
/// use kedge_executor::{ExecutorConfig, Executor, Pool};
///
/// let executor = Executor::new(ExecutorConfig::default())?;
/// let sum = executor.submit(Pool::NonIo, || 1 + 1);
/// assert_eq!(sum.wait(), Ok(2));
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "the result comes through this; cancel or drop it on purpose"]
pub struct TaskHandle<T> {
    pub(crate) closure: Arc<dyn HasResult<T>>,
    /// `None` if the executor did not accept the closure.
    pub(crate) id: Option<TaskId>,
    /// `true` if runs of the kind are so short that a waiter should spin instead of parking.
    pub(crate) soon: bool,
    /// The executor, if it is a manual one: the waiting thread runs its tasks.
    pub(crate) manual: Option<Executor>,
}

impl<T> fmt::Debug for TaskHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("id", &self.id).finish()
    }
}

impl<T> TaskHandle<T> {
    /// Returns the id of the task, which [`Executor::cancel`] takes. `None` if the executor did not accept the closure.
    #[must_use]
    pub fn id(&self) -> Option<TaskId> {
        self.id
    }

    /// Returns `true` if the result is available or never will be.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.closure.promise().is_set()
    }

    /// Waits for the result. On a manual executor the calling thread runs due tasks while it waits.
    ///
    /// # Errors
    /// [`TaskError`] when the closure was cancelled, panicked or was not accepted.
    pub fn wait(self) -> Result<T, TaskError> {
        let promise = self.closure.promise();
        if let Some(executor) = &self.manual {
            executor.drive_until(|| promise.is_set());
        }
        promise.wait(self.soon)
    }
}

impl<T> Future for TaskHandle<T> {
    type Output = Result<T, TaskError>;

    fn poll(self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        self.closure.promise().poll(context.waker())
    }
}
