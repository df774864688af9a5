//! An answer to STAT that is composed in steps.

use kedge_types::Status;

use crate::stat_generator::StatGenerator;
use crate::stat_timings::TimedGroup;

/// The format of the lines and of the end of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatFormat {
    /// The binary protocol: number of the opcode, and opaque.
    Binary {
        /// The number of the request's opcode.
        number: u8,
        /// The opaque of the request.
        opaque: u32,
    },
    /// The text protocol.
    Text,
    /// The text protocol, for the group that resets the others.
    TextReset,
}

/// An answer to STAT of which a part is still to be composed.
pub(crate) struct StatAnswer {
    pub(crate) form: StatFormat,
    pub(crate) walk: StatGenerator,
    /// The group, for the histograms.
    pub(crate) group: TimedGroup,
    /// The start of the command, nanoseconds of the monotonic clock.
    pub(crate) start_ns: u64,
    /// Time spent on the lines so far, in nanoseconds.
    pub(crate) worked_ns: u64,
    /// The status that ends the answer, if the rest cannot be composed.
    pub(crate) failed: Option<Status>,
}

/// The answer to STAT in progress, if there is one.
#[derive(Default)]
pub(crate) struct StatInProgress(pub(crate) Option<Box<StatAnswer>>);

impl StatInProgress {
    /// Returns true if an answer is in progress.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.0.is_some()
    }

    /// Lets the answer end with an error at its next step, as its bucket is gone.
    pub(crate) fn cancel(&mut self) {
        if let Some(answer) = &mut self.0 {
            answer.walk = StatGenerator::new(|_| false);
            answer.failed = Some(Status::NoBucket);
        }
    }
}
