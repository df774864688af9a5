//! Parked operations: commands that wait for the disk, for memory, or for the state of their vBucket.
//!
//! A step of a vBucket that cannot go on has changed nothing. Its command is kept as a [`PendingOp`] in a queue of
//! [`ParkedOperations`] that belongs to the component which makes the condition true. That component runs the step again
//! with a [`Resumption`]: the client's command is not executed anew. The queue has what all of them share: limits, order,
//! the number of waiting operations, and the end of the bucket. When an operation is resumed is up to the component.

mod counting;
mod op;
mod queue;
mod resume;

pub use counting::{outcome_counters, with_meta_counters};
pub use op::{Admission, Op, PendingOp, WaitFor, role_of};
pub(crate) use queue::ParkedOperations;
pub(crate) use resume::{Resumption, may_resume};
