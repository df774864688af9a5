//! The seqno that a copy must reach again after a rollback.
//!
//! A vBucket that follows an active acknowledges prepares, and a client relies on that. A rollback goes to a commit of the
//! file, which may be older than the last acknowledged prepare. Until the vBucket has received that part again, it is not
//! a copy of what clients rely on.
//!
//! Invariants:
//! * The point reaches the disk together with the removal: it is part of the records of rollback and reset, and of the
//!   state in the file.
//! * It becomes lower only if the history of an active diverges before it: an active has everything that was acknowledged
//!   to clients, so the rest was not.
//! * Within a snapshot, an older version of a key may be missing while the newer one has not arrived. So the end of the
//!   snapshot in which the seqno arrives has to be on disk.
//! * It is compared with what is on disk, which never becomes less except by another removal. So nothing records that it
//!   is reached.

use crate::failover::FailoverTable;
use kedge_types::Seqno;

/// The seqno that a vBucket must reach again after a rollback before it counts as a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatchUpPoint {
    /// The last seqno that may have been acknowledged.
    pub seqno: Seqno,
    /// The history that this seqno belongs to: that of the vBucket before the rollback, or that of the last active that it
    /// followed since.
    pub failover: FailoverTable,
    /// True if `seqno` is the end of the snapshot in which the original one arrived.
    pub(crate) has_arrived: bool,
}

impl CatchUpPoint {
    /// Creates the point of a vBucket that has to reach `seqno` of this history.
    #[must_use]
    pub fn new(seqno: Seqno, failover: FailoverTable) -> Self {
        Self {
            seqno,
            failover,
            has_arrived: false,
        }
    }

    /// Raises the point, before it is on disk, to the end of the snapshot that has it.
    pub(crate) fn on_snapshot_end(&mut self, end: Seqno) {
        if !self.has_arrived && self.seqno <= end {
            self.seqno = end;
            self.has_arrived = true;
        }
    }

    /// Continues with the history of an active.
    pub(crate) fn follow(&mut self, failover: &FailoverTable) {
        self.seqno = self.seqno.min(self.failover.shared_with(failover));
        self.failover = failover.clone();
        self.has_arrived = false;
    }
}

/// The branch that begins with a rollback or reset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBranch {
    /// The failover table with the new branch.
    pub failover: FailoverTable,
    /// The point that the vBucket must reach again.
    pub catch_up: Option<CatchUpPoint>,
}

impl From<FailoverTable> for NewBranch {
    fn from(failover: FailoverTable) -> Self {
        Self {
            failover,
            catch_up: None,
        }
    }
}
