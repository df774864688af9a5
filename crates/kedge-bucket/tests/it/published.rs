//! What a vBucket said of its order, and whether it still holds after a crash.

use crate::tools::*;
use kedge_bucket::VbFigures;
use kedge_types::{Seqno, VbId, VbUuid};

/// Up to where the branch of a vBucket was said to be on disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Published {
    pub(crate) branch: VbUuid,
    begins: Seqno,
    persisted: Seqno,
    high: Seqno,
}

impl Published {
    /// What is said now; `None` of a vBucket that was deleted.
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

    /// Nothing of it was taken back: no seqno that was persisted is above where the branch ended, and none is given out
    /// twice in one branch.
    pub(crate) fn holds(&self, now: &VbFigures) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("{what} of {self:?}: {now:?}"));
        if now.high_seqno < self.persisted {
            return wrong("high seqno");
        }
        match now.failover.iter().position(|it| it.0 == self.branch) {
            // Nothing of it was on disk, not even that it had begun.
            None if self.persisted <= self.begins => Ok(()),
            None => wrong("unknown branch"),
            Some(0) if now.high_seqno >= self.high => Ok(()),
            Some(0) => wrong("the branch goes on below its end"),
            Some(at) if now.failover[at - 1].1 >= self.persisted => Ok(()),
            Some(_) => wrong("end of the branch"),
        }
    }
}
