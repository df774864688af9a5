//! The outcome of a command that did not fail.

/// A command that was done, or is to be completed later under its cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// Done.
    Done(T),
    /// To be completed later.
    Parked,
}

impl<T> Outcome<T> {
    /// Returns the same outcome with its result changed by `with`.
    pub fn map<U>(self, with: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Self::Done(done) => Outcome::Done(with(done)),
            Self::Parked => Outcome::Parked,
        }
    }
}
