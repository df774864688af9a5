//! How far what a file has, or the log, has come.

use super::FileChange;
use crate::checkpoint::Change;
use crate::snapshot::Snapshot;
use crate::state::VbState;
use kedge_types::Seqno;

/// The progress of the versions in a file, or in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ApplyProgress {
    /// The last change that has an item.
    pub(crate) high: Seqno,
    /// The last document, committed or without a level. In a disk snapshot, the last before it.
    pub(crate) visible: Seqno,
    /// The last prepare.
    pub(crate) prepared: Seqno,
    /// The last prepare that ended. In a disk snapshot, the last before it.
    pub(crate) completed: Seqno,
    /// The snapshot in whose middle this is.
    pub(crate) open: Option<Snapshot>,
    /// The last document of a disk snapshot.
    pub(crate) seen: Seqno,
}

impl ApplyProgress {
    /// The last consistent point that has an item.
    pub(crate) fn consistent(&self) -> Seqno {
        self.open
            .map_or(self.high, |open| open.start.min(self.high))
    }

    /// The next consistent point, or this.
    pub(crate) fn next_consistent(&self) -> Seqno {
        self.open.map_or(self.high, |open| open.end)
    }

    /// The end of the disk snapshot in whose middle this is.
    pub(crate) fn disk_end(&self) -> Option<Seqno> {
        let open = self.open.filter(Snapshot::is_disk);
        open.map(|open| open.end)
    }

    /// The last prepare up to the consistent point, as far as that is known. In a disk snapshot that broke off, newer
    /// versions of keys may have come whose prepares were before it, and end them: then it is the consistent point, up
    /// to which everything is there.
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
            // A snapshot that broke off counts as whole.
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

    /// Goes past `items`, the ends of prepares apart.
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
