//! What a vBucket's file brings back, before the log's records are applied to it.

use crate::apply::{ApplyProgress, PersistedState};
use crate::collections::{Collections, FileCollections};
use crate::durability::Prepare;
use crate::item::{Item, ItemMeta};
use crate::replay::ReplayError;
use crate::residency::Residency;
use crate::snapshot::Snapshot;
use crate::vbucket::VBucket;
use kedge_types::{Seqno, VbUuid};

/// What a vBucket's file holds, its documents apart.
#[derive(Clone, Debug)]
pub struct FileState {
    /// What it says of its vBucket.
    pub state: PersistedState,
    /// Its last seqno.
    pub high_seqno: Seqno,
    /// Its live documents.
    pub documents: u64,
    /// Its prepares that did not end: those above `state.completed`, aborts apart, and those apart whose key has a newer
    /// document.
    pub prepares: Vec<Item>,
    /// Its collections.
    pub collections: FileCollections,
}

impl FileState {
    /// Whether the file was written after the branch `uuid` began.
    pub(crate) fn knows(&self, uuid: VbUuid) -> bool {
        let branches = self.state.failover.entries();
        branches.iter().any(|(known, _)| *known == uuid)
    }

    pub(crate) fn documents(&self) -> usize {
        usize::try_from(self.documents).unwrap_or(usize::MAX)
    }

    /// The snapshot that the file is in the middle of.
    fn open(&self) -> Option<Snapshot> {
        let PersistedState {
            snap_start,
            snap_end,
            snap_kind,
            ..
        } = self.state;
        (self.high_seqno < snap_end).then(|| Snapshot::new(snap_kind, snap_start, snap_end))
    }

    /// Up to where the log has to go before all prepares that ended are known to have; 0: they are.
    pub(crate) fn torn_upto(&self) -> Seqno {
        let open = self.open().filter(Snapshot::is_disk);
        open.map_or(Seqno(0), |open| open.end)
    }

    fn progress(&self) -> ApplyProgress {
        let high = self.high_seqno;
        let PersistedState {
            visible,
            prepared,
            completed,
            ..
        } = self.state;
        ApplyProgress {
            high,
            open: self.open(),
            visible: visible.min(high),
            prepared: prepared.min(high),
            completed: completed.min(high),
            ..ApplyProgress::default()
        }
    }
}

impl VBucket {
    /// Begins with what the vBucket's file holds, and forgets what was there; replay of the log follows or goes on.
    ///
    /// # Errors
    /// [`ReplayError::BadPrepare`] when the prepares do not hang together; the vBucket is of no use then.
    pub fn begin_from(&mut self, base: FileState) -> Result<(), ReplayError> {
        self.start_from(&base)?;
        self.replay.begin_from(base);
        Ok(())
    }

    pub(crate) fn start_from(&mut self, base: &FileState) -> Result<(), ReplayError> {
        self.forget_all(base.state.failover.clone());
        self.state = base.state.state;
        self.high_seqno = base.high_seqno;
        self.persisted_seqno = base.high_seqno;
        self.purged_rev = base.state.max_deleted_rev;
        self.purge_seqno = base.state.purge;
        self.may_have_xattrs = base.state.may_have_xattrs;
        self.residency = Residency::cold(base.documents());
        self.take_over(base)
    }

    /// Takes progress and prepares from the file, to which memory is to go back.
    pub(crate) fn take_over(&mut self, base: &FileState) -> Result<(), ReplayError> {
        let progress = base.progress();
        self.visible_seqno = progress.visible;
        self.open = progress.open;
        self.clock.raise_to(base.state.max_cas);
        self.collections = Collections::from_file(&base.collections);
        self.unapplied
            .begin(base.high_seqno, progress, base.state.max_deleted_rev);
        let mut prepares = base.prepares.clone();
        prepares.sort_unstable_by_key(Item::seqno);
        for item in prepares {
            let hash = self.table.hash(item.key());
            let free = !self.prepares.holds(hash, item.key());
            let fits = free && !self.prepares.has_reached(item.seqno());
            let level = item.level().filter(|_| fits);
            let level = level.ok_or(ReplayError::BadPrepare {
                prepared: item.seqno(),
            })?;
            self.prepares.add(Prepare::found(hash, item, level));
        }
        self.prepares.note_completed(progress.completed);
        Ok(())
    }

    /// As [`VBucket::warm`], of a document whose value stays on disk.
    pub fn warm_without_value(&mut self, history: u32, meta: &ItemMeta, key: &[u8]) -> bool {
        self.warm(history, Item::on_disk(meta, key))
    }

    /// A document or tombstone was read from the file while [`VBucket::history`] was `history`: it goes into the hash
    /// table unless its key is there. Says whether it did.
    pub fn warm(&mut self, history: u32, item: Item) -> bool {
        let is_late = self.is_warm() || item.seqno() > self.applied_seqno();
        if history != self.history() || is_late || self.is_of_dropped(item.key()) {
            return false;
        }
        let hash = self.table.hash(item.key());
        if self.table.find(hash, item.key()).is_some() {
            self.find_out(hash, item.key(), !item.is_deleted());
            return false;
        }
        self.put_known(hash, item);
        true
    }
}
