//! A range scan command in the queue of a task: its steps and its result.

use super::ScanLane;
use super::continue_scan::ContinueScan;
use super::create::CreateScan;
use super::failure::ScanFailure;
use crate::scans::component::RangeScanner;
use kedge_types::{Status, VbId};
use kedge_vbucket::{Completion, Cookie};

/// The maximum size in bytes of one step, and of one part of a response.
pub(super) const PART_BYTES: usize = 256 << 10;
/// The maximum number of records that one step reads.
pub(super) const PART_RECORDS: usize = 4_096;

/// A command in the queue of a task.
#[derive(Debug)]
pub(super) enum ScanJob {
    Create(Box<CreateScan>),
    Continue(ContinueScan),
}

/// The result of one step of a command.
pub(super) enum ScanProgress {
    /// The command made progress and can continue at once; a part of the response, if there is one.
    Advanced(Option<(Cookie, Completion)>),
    /// The command waits for the file.
    Waiting,
    /// The command has ended, with the last part of its response.
    Finished((Cookie, Completion)),
}

impl ScanJob {
    fn vb(&self) -> VbId {
        match self {
            Self::Create(create) => create.vb,
            Self::Continue(continue_scan) => continue_scan.scan.vb,
        }
    }

    pub(super) fn failed(&self, status: Status) -> (Cookie, Completion) {
        let result = status;
        match self {
            Self::Create(create) => (
                create.cookie,
                Completion::ScanMade {
                    result: Err(result),
                },
            ),
            Self::Continue(continue_scan) => (
                continue_scan.cookie,
                Completion::Scanned {
                    result: Err(result),
                },
            ),
        }
    }

    /// Returns the time, in nanoseconds, at which the command must be examined without a wakeup.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        match self {
            Self::Create(create) => Some(create.deadline_ns.min(create.recheck_ns)),
            Self::Continue(_) => None,
        }
    }

    pub(super) fn advance(&mut self, scanner: &RangeScanner, lane: &ScanLane) -> ScanProgress {
        let progress = match self {
            Self::Create(create) => create.advance(scanner, lane),
            Self::Continue(continue_scan) => continue_scan.advance(scanner),
        };
        progress.unwrap_or_else(|failed| {
            let status = match failed {
                ScanFailure::Status(status) => status,
                ScanFailure::Disk(error) => {
                    scanner
                        .residency
                        .fetcher()
                        .on_read_failed(self.vb(), &error.to_string());
                    Status::Internal
                }
            };
            match self {
                Self::Create(create) => create.abandon(),
                Self::Continue(continue_scan) => drop(scanner.scans.remove(&continue_scan.scan.id)),
            }
            ScanProgress::Finished(self.failed(status))
        })
    }
}
