//! The progress of a file, or of the log.

use super::FileChange;
use crate::checkpoint::Change;
use crate::snapshot::DcpSnapshot;
use crate::state::VbState;
use kedge_types::Seqno;

/// The progress of the versions in a file, or in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ApplyProgress {
    /// The seqno of the last change that has an item.
    pub(crate) high: Seqno,
    /// The seqno of the last document, committed or written without a level. Inside a disk snapshot, the last one
    /// before it.
    pub(crate) visible: Seqno,
    /// The seqno of the last prepare.
    pub(crate) prepared: Seqno,
    /// The seqno of the last completed prepare. Inside a disk snapshot, the last one before it.
    pub(crate) completed: Seqno,
    /// The incomplete snapshot.
    pub(crate) open: Option<DcpSnapshot>,
    /// The seqno of the last document of the incomplete disk snapshot.
    pub(crate) seen: Seqno,
}

impl ApplyProgress {
    /// Returns the last consistent point that has an item.
    pub(crate) fn consistent(&self) -> Seqno {
        self.open
            .map_or(self.high, |open| open.start.min(self.high))
    }

    /// Returns the next consistent point. It is the current one if no snapshot is incomplete.
    pub(crate) fn next_consistent(&self) -> Seqno {
        self.open.map_or(self.high, |open| open.end)
    }

    /// Returns the end of the incomplete disk snapshot.
    pub(crate) fn disk_end(&self) -> Option<Seqno> {
        let open = self.open.filter(DcpSnapshot::is_disk);
        open.map(|open| open.end)
    }

    /// Returns the last prepare up to the consistent point, as far as it is known. In an interrupted disk snapshot,
    /// newer versions may have completed prepares before it. The result is then the consistent point, up to which
    /// nothing is missing.
    pub(crate) fn prepared_upto(&self, consistent: Seqno) -> Seqno {
        if self.disk_end().is_some() {
            return self.prepared.min(consistent);
        }
        let known = Some(self.prepared).filter(|prepared| *prepared <= consistent);
        known.unwrap_or_default()
    }

    pub(crate) fn on_change(&mut self, change: &Change) {
        match change {
            Change::Document(item) | Change::System(item) => self.see(item.seqno()),
            Change::Prepare(item) => self.prepared = item.seqno(),
            Change::Commit { item, prepared } => {
                self.see(item.seqno());
                self.complete(*prepared);
            }
            Change::Abort { prepared, .. } => self.complete(*prepared),
            Change::Snapshot(snapshot) => self.open = Some(**snapshot),
            // An interrupted snapshot counts as complete when the vBucket becomes active.
            Change::State(_, VbState::Active) => {
                self.visible = self.visible.max(self.seen);
                self.open = None;
            }
            Change::State(..)
            | Change::Reset(..)
            | Change::Rollback { .. }
            | Change::Delete
            | Change::Advance(_) => {}
        }
        if let Some(item) = change.item() {
            self.high = item.seqno();
        }
        if self.open.is_some()
            && let Some(seqno) = change.seqno()
        {
            self.reach(seqno);
        }
    }

    fn see(&mut self, seqno: Seqno) {
        if self.disk_end().is_some() {
            self.seen = seqno;
        } else {
            self.visible = seqno;
        }
    }

    fn complete(&mut self, prepared: Seqno) {
        if self.disk_end().is_none() {
            self.completed = self.completed.max(prepared);
        }
    }

    fn reach(&mut self, seqno: Seqno) {
        let Some(open) = self.open.take_if(|open| open.end <= seqno) else {
            return;
        };
        if open.is_disk() {
            let told = open.max_visible.unwrap_or_default().min(self.high);
            self.visible = self.visible.max(self.seen).max(told);
            let completed = open.high_completed.unwrap_or_default().min(self.high);
            self.completed = self.completed.max(completed);
        }
    }

    /// Advances past `items`. Completions of prepares are handled elsewhere.
    pub(crate) fn pass(&mut self, items: &[FileChange]) {
        for apply in items {
            match apply {
                FileChange::Document(item) => self.visible = item.seqno(),
                FileChange::Prepare(item) => self.prepared = item.seqno(),
                FileChange::Abort(_) => {}
            }
        }
    }
}
