//! A node of a pair: a vBucket and its disk.

use super::{WHOLE, table};
use crate::disk::{Disk, File, apply, documents};
use crate::tools::*;
use kedge_types::{Seqno, VbUuid};
use kedge_vbucket::{Change, NewBranch, PersistenceMode, Position, VBucket, VbState};

/// A node.
pub(super) struct Node {
    pub(super) vb: VBucket,
    pub(super) disk: Disk,
    persistence: PersistenceMode,
    /// True if a crash lost unlogged changes since the node was last equal to the active one.
    pub(super) has_crashed: bool,
    /// True if the node rolled back since then.
    pub(super) has_gone_back: bool,
    /// True if the node recovered inside a snapshot. In a disk snapshot, the visible seqno is unknown until the next
    /// document.
    pub(super) was_torn: bool,
}

impl Node {
    pub(super) fn new(persistence: PersistenceMode) -> Self {
        Self {
            vb: without_role(persistence),
            disk: Disk::default(),
            persistence,
            has_crashed: false,
            has_gone_back: false,
            was_torn: false,
        }
    }

    /// Returns all changes of the history, except those that a disk snapshot omitted.
    pub(super) fn history(&self) -> Vec<Change> {
        let mut changes = self.disk.logged.clone();
        let mut queued = Vec::new();
        self.vb
            .changes()
            .for_log(usize::MAX, usize::MAX, &mut queued);
        for change in queued {
            apply(&mut changes, change);
        }
        changes
    }

    pub(super) fn high(&self) -> u64 {
        self.vb.high_seqno().get()
    }

    /// Writes up to `max` changes to the log, or to the file without a log. The caller notifies the vBucket.
    fn write(&mut self, max: usize) -> Position {
        match self.persistence {
            PersistenceMode::LogThenFile => self.disk.append(&self.vb, max),
            PersistenceMode::Direct => self.disk.write_through(&mut self.vb, max),
        }
    }

    /// Persists up to `max` changes.
    pub(super) fn persist(&mut self, max: usize) {
        let to = self.write(max);
        self.vb.on_logged(to);
    }

    /// Crashes after up to `written` further changes were persisted without notification of the vBucket.
    pub(super) fn crash(&mut self, written: usize, uuid: VbUuid) {
        self.write(written);
        self.recover(uuid);
    }

    /// Returns the vBucket that another process recovers from the disk.
    pub(super) fn found(&mut self, branch: Option<VbUuid>) -> VBucket {
        self.disk.recover(without_role(self.persistence), branch)
    }

    /// Recovers in a new process from log and file.
    fn recover(&mut self, uuid: VbUuid) {
        let was = self.vb.state();
        let high = self
            .disk
            .logged
            .iter()
            .filter_map(Change::seqno)
            .next_back();
        self.vb = self.found(Some(uuid));
        assert_eq!(
            self.vb.durability().topology(),
            None,
            "no topology was set yet"
        );
        assert!(
            self.vb.high_seqno() >= high.unwrap_or_default(),
            "what the log has"
        );
        if was != VbState::Active && !self.disk.logged.is_empty() {
            assert_eq!(
                self.vb
                    .failover()
                    .entries()
                    .iter()
                    .filter(|(known, _)| *known == uuid)
                    .count(),
                0
            );
        }
        assert_eq!(table(&self.vb), documents(&self.disk.logged, at(0)));
        let in_file = self.disk.file().is_none_or(File::is_consistent);
        self.was_torn |= !in_file || self.vb.history().consistent_seqno() < self.vb.high_seqno();
        self.has_crashed = true;
    }

    /// Rolls back to the newest consistent header at or before `to`, or resets.
    pub(super) fn go_back(&mut self, to: Seqno, uuid: VbUuid) {
        if to >= self.vb.high_seqno() {
            return;
        }
        self.has_gone_back = true;
        self.persist(usize::MAX);
        self.persist(usize::MAX);
        self.disk.apply(&mut self.vb, WHOLE);
        let point = |file: &&File| file.high <= to && file.is_consistent();
        let point = self.disk.headers.iter().rfind(point);
        let point = point.map(|file| file.high).filter(|high| *high > Seqno(0));
        let Some(point) = point else {
            self.vb.recovery().reset_for_rollback(uuid);
            return;
        };
        let keys = self.vb.rollback(point, uuid);
        match self.persistence {
            PersistenceMode::LogThenFile => self.persist(usize::MAX),
            // Only the file records the rollback. There is nothing to be written for it later.
            PersistenceMode::Direct => {
                let branch = NewBranch {
                    failover: self.vb.failover().clone(),
                    catch_up: self.vb.history().catch_up().cloned(),
                };
                let branch = Box::new(branch);
                let back = Change::Rollback { to: point, branch };
                apply(&mut self.disk.logged, back);
            }
        }
        self.disk.rewind(point, &self.vb);
        self.disk.rewound(&mut self.vb, &keys);
    }
}
