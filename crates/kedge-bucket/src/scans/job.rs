//! A command that a task works at: its turns, and how it ends.

use super::ScanLane;
use super::continuing::Continuing;
use super::creating::Creating;
use crate::scans::component::RangeScanner;
use kedge_bucket_core::BucketError;
use kedge_types::{Status, VbId};
use kedge_vbucket::{Completion, Cookie};

/// A part of a continue, and a turn of one: so many bytes, or documents that were looked at.
pub(super) const PART_BYTES: usize = 256 << 10;
pub(super) const PART_RECORDS: usize = 4_096;

/// A command that a task has in its queue.
#[derive(Debug)]
pub(super) enum Job {
    Create(Box<Creating>),
    Continue(Continuing),
}

/// What came of a turn.
pub(super) enum Turn {
    /// It goes on at once; a part of the answer.
    Worked(Option<(Cookie, Completion)>),
    /// It has to wait for the file.
    Waits,
    /// It has ended.
    Over((Cookie, Completion)),
}

/// A command ends like this.
pub(super) enum Failed {
    As(Status),
    /// The file cannot be read.
    Disk(BucketError),
}

impl From<Status> for Failed {
    fn from(status: Status) -> Self {
        Self::As(status)
    }
}

impl From<BucketError> for Failed {
    fn from(error: BucketError) -> Self {
        Self::Disk(error)
    }
}

impl From<kedge_storage::StorageError> for Failed {
    fn from(error: kedge_storage::StorageError) -> Self {
        Self::Disk(error.into())
    }
}

impl Job {
    fn vb(&self) -> VbId {
        match self {
            Self::Create(creating) => creating.vb,
            Self::Continue(continuing) => continuing.scan.vb,
        }
    }

    pub(super) fn failed(&self, status: Status) -> (Cookie, Completion) {
        let result = status;
        match self {
            Self::Create(creating) => (
                creating.cookie,
                Completion::ScanMade {
                    result: Err(result),
                },
            ),
            Self::Continue(continuing) => (
                continuing.cookie,
                Completion::Scanned {
                    result: Err(result),
                },
            ),
        }
    }

    /// When it has to be looked at without being woken.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        match self {
            Self::Create(creating) => Some(creating.deadline_ns.min(creating.look_ns)),
            Self::Continue(_) => None,
        }
    }

    pub(super) fn turn(&mut self, scanner: &RangeScanner, lane: &ScanLane) -> Turn {
        let turn = match self {
            Self::Create(creating) => creating.turn(scanner, lane),
            Self::Continue(continuing) => continuing.turn(scanner),
        };
        turn.unwrap_or_else(|failed| {
            let status = match failed {
                Failed::As(status) => status,
                Failed::Disk(error) => {
                    scanner
                        .residency
                        .fetcher()
                        .on_read_failed(self.vb(), &error.to_string());
                    Status::Internal
                }
            };
            match self {
                Self::Create(creating) => creating.give_up(),
                Self::Continue(continuing) => drop(scanner.scans.remove(&continuing.scan.id)),
            }
            Turn::Over(self.failed(status))
        })
    }
}
