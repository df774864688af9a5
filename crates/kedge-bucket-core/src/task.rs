//! Tasks of a bucket's components.
//!
//! Invariants:
//! * All tasks of a bucket belong to its owner on the executor, which is unregistered at its end: none is left then.
//! * A task that panics ends the bucket: without its log writer, for example, a bucket would acknowledge nothing, and
//!   report nothing.

use crate::core::BucketCore;
use crate::error::BucketError;
use crate::phase::BucketPhase;
use kedge_executor::{Next, Task, TaskContext, TaskId, TaskKind, TaskSpec};
use kedge_types::Status;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

/// The body of a task that works for a component as long as the bucket is open.
pub trait TaskBody<C: ?Sized>: Send + 'static {
    /// Runs once, at `now` of the executor's clock.
    fn run(&mut self, component: &C, now: Duration) -> Next;
}

/// A part of a bucket that tasks work for.
pub trait Component: Send + Sync + 'static {
    /// The parts that all components share.
    fn core(&self) -> &BucketCore;
}

/// A [`TaskBody`] as a task: it ends with its bucket, and its panic ends the bucket.
struct BucketTask<C, W> {
    component: Arc<C>,
    kind: &'static TaskKind,
    body: W,
}

impl<C: Component, W: TaskBody<C>> Task for BucketTask<C, W> {
    fn run(&mut self, context: &TaskContext<'_>) -> Next {
        let core = self.component.core();
        if !matches!(core.phase(), BucketPhase::Loading | BucketPhase::Open) {
            return Next::Done;
        }
        let run = AssertUnwindSafe(|| self.body.run(&self.component, context.now()));
        catch_unwind(run).unwrap_or_else(|panic| {
            core.fail(&format!("the task {} panicked", self.kind.name()));
            // The executor counts it, and drops the task.
            resume_unwind(panic)
        })
    }
}

type ChangeCallback<T> = Box<dyn FnOnce(Result<T, Status>) + Send>;

/// The listener of the end of a change, called once: with `TemporaryFailure` if the change did not begin, or panicked.
struct ChangeListener<T>(Option<ChangeCallback<T>>);

impl<T> ChangeListener<T> {
    fn call(mut self, result: Result<T, Status>) {
        if let Some(done) = self.0.take() {
            done(result);
        }
    }
}

impl<T> Drop for ChangeListener<T> {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(Status::TemporaryFailure));
        }
    }
}

/// Adds a task that sleeps until it is woken, so that its id is known before it runs.
///
/// # Errors
/// [`BucketError::Executor`].
pub fn add_task<C: Component>(
    component: &Arc<C>,
    kind: &'static TaskKind,
    description: &'static str,
    body: impl TaskBody<C>,
) -> Result<TaskId, BucketError> {
    let core = component.core();
    let spec = TaskSpec {
        description: description.into(),
        first_run: None,
        ..TaskSpec::new(kind, core.owner)
    };
    let task = BucketTask {
        component: Arc::clone(component),
        kind,
        body,
    };
    Ok(core.setup.executor.schedule(spec, task)?)
}

/// Runs `work` once, as a task, and hands its result to `done`.
pub fn submit_change<C: Component, T: Send + 'static>(
    component: &Arc<C>,
    kind: &'static TaskKind,
    work: impl FnOnce(&C) -> Result<T, Status> + Send + 'static,
    done: impl FnOnce(Result<T, Status>) + Send + 'static,
) {
    let worker = Arc::clone(component);
    let listener = ChangeListener(Some(Box::new(done)));
    let run = move || match catch_unwind(AssertUnwindSafe(|| work(&worker))) {
        Ok(result) => listener.call(result),
        Err(panic) => {
            let core = worker.core();
            core.fail(&format!("the task {} panicked", kind.name()));
            resume_unwind(panic)
        }
    };
    let core = component.core();
    // A refusal, as the bucket ends, reaches the listener.
    drop(core.setup.executor.submit_as(kind, core.owner, run));
}
