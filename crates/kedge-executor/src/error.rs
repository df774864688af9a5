//! The errors of the executor.

/// The reason why a closure has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// The closure was cancelled before it ran: through its id, by the end of its owner, or by the shutdown of the
    /// executor.
    #[error("the task was cancelled before it ran")]
    Cancelled,
    /// The closure panicked with this message.
    #[error("the task panicked: {0}")]
    Panicked(String),
    /// The executor did not accept the closure.
    #[error(transparent)]
    NotScheduled(#[from] ScheduleError),
}

/// The reason why the executor did not accept a task or an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The owner is unregistered or being unregistered, or the executor is shut down.
    #[error("the task's owner is not registered any more")]
    NoOwner,
    /// The limit on the number of tasks or owners is reached.
    #[error("there are too many tasks")]
    TooMany,
}
