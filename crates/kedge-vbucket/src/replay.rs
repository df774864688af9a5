//! Bringing a vBucket back from the log.
//!
//! Changes come in the order in which they were queued. Each vBucket's seqnos must grow; a log that says otherwise is
//! damaged in a way that its checksums do not show, and is refused.

use crate::checkpoint::Change;
use crate::durability::Prepare;
use crate::item::Item;
use crate::vbucket::VBucket;
use kedge_types::{Seqno, VbUuid};
use std::fmt;

/// The log says something that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayError {
    /// A seqno is not above that of the change before it.
    Order {
        /// The seqno before it.
        high: Seqno,
        /// The seqno that came.
        seqno: Seqno,
    },
    /// A commit or abort names a prepare that is not there.
    NoPrepare {
        /// The seqno of the prepare.
        prepared: Seqno,
    },
    /// A prepare says no level, or its key has one already.
    BadPrepare {
        /// The seqno of the prepare.
        prepared: Seqno,
    },
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order { high, seqno } => write!(f, "seqno {seqno} follows seqno {high}"),
            Self::NoPrepare { prepared } => {
                write!(
                    f,
                    "a commit or abort names the prepare at seqno {prepared}, which is not there"
                )
            }
            Self::BadPrepare { prepared } => {
                write!(
                    f,
                    "the prepare at seqno {prepared} has no level, or its key has one already"
                )
            }
        }
    }
}

impl std::error::Error for ReplayError {}

impl VBucket {
    /// Applies one change. A commit needs no value: that of its prepare is taken.
    ///
    /// # Errors
    /// [`ReplayError`] when it does not fit what came before; nothing was changed then.
    pub fn replay(&mut self, change: Change) -> Result<(), ReplayError> {
        match change {
            Change::Document(item) => {
                self.replay_seqno(&item)?;
                self.visible_seqno = self.high_seqno;
                let hash = self.table.hash(item.key());
                self.table.put(hash, item);
            }
            Change::Prepare(item) => {
                let prepared = item.seqno();
                let hash = self.table.hash(item.key());
                let level = item
                    .level()
                    .filter(|_| !self.prepares.holds(hash, item.key()));
                let level = level.ok_or(ReplayError::BadPrepare { prepared })?;
                self.replay_seqno(&item)?;
                self.prepares.add(Prepare {
                    hash,
                    item,
                    level,
                    waiter: None,
                });
            }
            Change::Commit { item, prepared } => {
                let Some(prepare) = self.replayed_prepare(&item, prepared)? else {
                    return Ok(());
                };
                let committed = prepare.item.with_seqno(item.seqno());
                self.visible_seqno = self.high_seqno;
                self.table.put(prepare.hash, committed);
            }
            Change::Abort { item, prepared } => {
                self.replayed_prepare(&item, prepared)?;
            }
            Change::State(failover) => self.failover = *failover,
            Change::Reset(failover) => {
                self.forget_all(*failover);
                self.orphan = None;
            }
        }
        self.persisted_seqno = self.high_seqno;
        Ok(())
    }

    fn replay_seqno(&mut self, item: &Item) -> Result<(), ReplayError> {
        if item.seqno() <= self.high_seqno {
            return Err(ReplayError::Order {
                high: self.high_seqno,
                seqno: item.seqno(),
            });
        }
        self.high_seqno = item.seqno();
        self.clock.raise_to(item.cas());
        Ok(())
    }

    /// The prepare that a commit or abort ends. When it is not there, its part of the log may have been given back
    /// after a reset that is still to come; without one, [`VBucket::finish_replay`] refuses.
    fn replayed_prepare(
        &mut self,
        item: &Item,
        prepared: Seqno,
    ) -> Result<Option<Prepare>, ReplayError> {
        self.replay_seqno(item)?;
        let prepare = self
            .prepares
            .take_key(self.table.hash(item.key()), item.key());
        if prepare.is_none() {
            self.orphan
                .get_or_insert(ReplayError::NoPrepare { prepared });
        }
        Ok(prepare)
    }

    /// Accepts commits and aborts whose prepares are not there: salvage skipped these.
    pub fn forgive_orphan(&mut self) {
        self.orphan = None;
    }

    /// All of the log was read. Prepares that it left open are committed: they are on disk, so a majority of one has
    /// them, and someone may have seen their commit. After an unclean stop a new branch begins under `branch`, because
    /// what was given out and not persisted is lost.
    ///
    /// # Errors
    /// [`ReplayError::NoPrepare`] when a commit or abort had none.
    pub fn finish_replay(&mut self, branch: Option<VbUuid>) -> Result<(), ReplayError> {
        if let Some(orphan) = self.orphan {
            return Err(orphan);
        }
        if let Some(uuid) = branch.filter(|_| self.high_seqno > Seqno(0)) {
            self.failover.begin(uuid, self.high_seqno);
            self.checkpoints
                .push(Change::State(Box::new(self.failover.clone())));
        }
        self.persisted_seqno = self.high_seqno;
        self.commit_ready();
        Ok(())
    }
}
