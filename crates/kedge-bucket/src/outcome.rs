//! What became of a command that did not fail.

use kedge_types::Status;

/// A command that was done, or is to be completed later under its cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// Done.
    Done(T),
    /// To be completed later.
    Parked,
}

impl<T> Outcome<T> {
    /// The same outcome with what was done changed by `with`.
    pub fn map<U>(self, with: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Self::Done(done) => Outcome::Done(with(done)),
            Self::Parked => Outcome::Parked,
        }
    }
}

/// What a vBucket's step came to. Documents that are on disk only are not there now.
pub(crate) fn of_step<T>(
    step: Result<kedge_vbucket::Outcome<T>, Status>,
) -> Result<Outcome<T>, Status> {
    match step? {
        kedge_vbucket::Outcome::Done(done) => Ok(Outcome::Done(done)),
        kedge_vbucket::Outcome::Parked => Ok(Outcome::Parked),
        kedge_vbucket::Outcome::Fetch => Err(Status::TemporaryFailure),
    }
}
