//! What can go wrong.

/// Why a closure gave no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// It was cancelled before it ran, by its handle, its owner's end or the executor's.
    #[error("the task was cancelled before it ran")]
    Cancelled,
    /// It panicked; with the panic's text.
    #[error("the task panicked: {0}")]
    Panicked(String),
    /// It was not taken at all.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// Why a task was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Its owner is being unregistered or is gone, or the executor is shut down.
    #[error("the task's owner is not registered any more")]
    NoOwner,
    /// There are as many tasks as there may be.
    #[error("there are too many tasks")]
    TooMany,
}
