//! What became of a command that did not fail.

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

impl<T> From<kedge_vbucket::Outcome<T>> for Outcome<T> {
    fn from(outcome: kedge_vbucket::Outcome<T>) -> Self {
        match outcome {
            kedge_vbucket::Outcome::Done(done) => Self::Done(done),
            kedge_vbucket::Outcome::Parked => Self::Parked,
        }
    }
}
