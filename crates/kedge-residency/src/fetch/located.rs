//! A read of a document whose place in its file is known.

use crate::parked::PendingOp;
use kedge_bucket_core::StartedRead;
use kedge_disk::RingFile;
use kedge_storage::LocatedDocument;
use kedge_types::Now;
use kedge_vbucket::FetchTicket;
use std::ops::Range;

/// A read that a front-end thread does for an operation that waits; it goes back with [`BackgroundFetcher::end_fetch`].
///
/// [`BackgroundFetcher::end_fetch`]: crate::BackgroundFetcher::end_fetch
#[derive(Debug)]
#[must_use = "an operation waits for it"]
pub struct Fetch {
    pub(super) ticket: FetchTicket,
    pub(super) op: PendingOp,
    pub(super) located: LocatedDocument,
    /// The time at which it was asked for.
    pub(super) before: Now,
    pub(super) started: StartedRead,
}

impl Fetch {
    /// Returns its operation, for which somebody else reads, or nobody.
    pub(super) fn into_op(self) -> PendingOp {
        self.op
    }

    /// Returns the file to be read.
    #[must_use]
    pub fn file(&self) -> &RingFile {
        self.located.file()
    }

    /// Returns the bytes of the file to be read.
    #[must_use]
    pub fn place(&self) -> Range<u64> {
        self.located.place()
    }
}
