//! The persisted seqnos and failover tables that a vBucket reported before a crash, and their validity afterwards.

use crate::tools::*;
use kedge_bucket::VbFigures;
use kedge_types::{Seqno, VbId, VbUuid};

/// The persisted seqno that a vBucket reported for its branch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Published {
    pub(crate) branch: VbUuid,
    begins: Seqno,
    persisted: Seqno,
    high: Seqno,
}

impl Published {
    /// Reads the present report; `None` for a deleted vBucket.
    pub(crate) fn read(open: &Open, vb: VbId) -> Option<Self> {
        let figures = open.bucket.vbucket_figures(vb)?;
        let (branch, begins) = figures.failover[0];
        Some(Self {
            branch,
            begins,
            persisted: figures.persisted_seqno,
            high: figures.high_seqno,
        })
    }

    /// Checks that the report still holds: no persisted seqno is above the end of its branch, and no seqno is used twice in one
    /// branch.
    pub(crate) fn holds(&self, now: &VbFigures) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("{what} of {self:?}: {now:?}"));
        if now.high_seqno < self.persisted {
            return wrong("high seqno");
        }
        match now.failover.iter().position(|it| it.0 == self.branch) {
            // Nothing of the branch was durable, not even its start.
            None if self.persisted <= self.begins => Ok(()),
            None => wrong("unknown branch"),
            Some(0) if now.high_seqno >= self.high => Ok(()),
            Some(0) => wrong("the branch goes on below its end"),
            Some(at) if now.failover[at - 1].1 >= self.persisted => Ok(()),
            Some(_) => wrong("end of the branch"),
        }
    }
}
