//! The changes of one apply, divided into commits of the file.

use super::{ApplyProgress, FileChange, PersistedState};
use crate::checkpoint::Change;
use crate::snapshot::{DcpSnapshot, SnapshotKind};
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use kedge_types::Seqno;
use std::hash::BuildHasher;
use std::ops::Range;

/// The number of changes among which older versions of a key are searched. The limit keeps the table of keys small. Few
/// versions are written twice because of it.
const WINDOW: usize = 1 << 17;

/// The commit or abort that completes a prepare.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrepareEnd {
    /// The seqno of its commit or abort.
    pub(crate) at: Seqno,
    /// The seqno of the prepare.
    pub(crate) prepared: Seqno,
}

/// All unapplied changes of a vBucket at one moment. [`ApplyBatch::parts`] divides them into commits. Afterwards the
/// batch is returned to [`crate::VbStore::end_apply`], whether it was written or not.
#[derive(Debug)]
pub struct ApplyBatch {
    /// The changes, in seqno order.
    pub(crate) items: Vec<FileChange>,
    /// Prepares that the last division into parts did not need.
    pub(crate) skipped_prepares: Vec<FileChange>,
    /// The completed prepares, in the order of their commits and aborts.
    pub(crate) ends: Vec<PrepareEnd>,
    /// True if older versions of a key may be present beside newer ones.
    pub(crate) may_repeat: bool,
    pub(crate) before: ApplyProgress,
    pub(crate) after: ApplyProgress,
    pub(crate) state: PersistedState,
    pub(crate) history: u32,
    pub(crate) replaces_file: bool,
    pub(crate) removes_file: bool,
    /// The applied seqno of the file before the batch.
    pub(crate) from: Seqno,
    pub(crate) upto: Seqno,
    /// The end of the last disk snapshot that has changes in the batch. Visible and completed seqnos are known only
    /// from there on.
    pub(crate) disk_end: Seqno,
}

/// One commit of the file.
#[derive(Debug)]
pub struct BatchPart<'a> {
    /// The changes in seqno order, with a key at most once in each namespace. Empty if only the metadata changed.
    pub items: &'a [FileChange],
    /// The vBucket metadata that this commit writes.
    pub state: PersistedState,
    /// The applied seqno of the file after this commit.
    pub upto: Seqno,
}

impl ApplyBatch {
    /// Returns the id of the history that the batch belongs to. If the vBucket has another history by now, the batch
    /// need not be written.
    #[must_use]
    pub fn history(&self) -> u32 {
        self.history
    }

    /// Returns whether the vBucket was reset. The content of the file is void then, and the first part goes into an
    /// empty file.
    #[must_use]
    pub fn replaces_file(&self) -> bool {
        self.replaces_file
    }

    /// Returns whether the vBucket was deleted. The file is removed then and nothing is written. The batch still has
    /// one part, which is finished when the file is removed.
    #[must_use]
    pub fn removes_file(&self) -> bool {
        self.removes_file
    }

    /// Returns the applied seqno of the file after all parts.
    #[must_use]
    pub fn upto(&self) -> Seqno {
        self.upto
    }

    /// Returns the vBucket metadata in the file after all parts.
    #[must_use]
    pub fn state(&self) -> &PersistedState {
        &self.state
    }

    /// Returns the vBucket metadata for a new, empty file.
    #[must_use]
    pub fn empty_state(&self) -> PersistedState {
        PersistedState {
            snap_start: Seqno(0),
            snap_end: Seqno(0),
            visible: Seqno(0),
            prepared: Seqno(0),
            completed: Seqno(0),
            purge: Seqno(0),
            ..self.state.clone()
        }
    }

    /// Returns the remaining changes. They may include older versions until [`ApplyBatch::parts`] is called.
    #[must_use]
    pub fn items(&self) -> &[FileChange] {
        &self.items
    }

    /// Removes versions that the batch replaces, and divides the rest into commits of at most `max_items` changes and
    /// `max_bytes` bytes (keys, values and item overhead). A commit exceeds these limits if a single item is larger, or
    /// until the next position where a cut is allowed: a few dozen items later, or slightly more than the number of
    /// concurrent prepares. There is at least one commit.
    pub fn parts(
        &mut self,
        max_items: usize,
        max_bytes: usize,
    ) -> impl ExactSizeIterator<Item = BatchPart<'_>> {
        self.restore_skipped();
        self.drop_old_documents();
        let cuts = self.cut(max_items.max(1), max_bytes);
        let last = cuts.len() - 1;
        let batch = &*self;
        let mut progress = batch.before;
        let mut ends = batch.ends.iter().peekable();
        cuts.into_iter().enumerate().map(move |(index, cut)| {
            let items = &batch.items[cut];
            let upto = match items.last() {
                Some(item) if index < last => item.item().seqno(),
                _ => batch.upto,
            };
            progress.pass(items);
            while let Some(end) = ends.next_if(|end| end.at <= upto) {
                progress.completed = end.prepared;
            }
            let mut state = batch.state.clone();
            if index < last {
                let progress = batch.known(progress, upto);
                state.snap_start = batch.before.consistent();
                if batch.disk_end > Seqno(0) {
                    state.snap_kind = SnapshotKind::Disk;
                }
                state.visible = progress.visible;
                state.prepared = progress.prepared;
                state.completed = progress.completed;
            }
            BatchPart { items, state, upto }
        })
    }

    /// Removes documents and tombstones that left the hash table and are followed by a newer version of their key.
    fn drop_old_documents(&mut self) {
        let replaced =
            |apply: &FileChange| apply.is_committed_namespace() && apply.item().is_replaced();
        if !self.may_repeat || !self.items.iter().any(replaced) {
            return;
        }
        let mut drop = BitSet::new(self.items.len());
        let mut newer = SeenKeys::default();
        for start in (0..self.items.len()).step_by(WINDOW) {
            let window = start..self.items.len().min(start + WINDOW);
            newer.clear();
            for index in window.rev() {
                let apply = &self.items[index];
                if apply.is_committed_namespace() && newer.has_or_put(&self.items, index) {
                    drop.set(index);
                }
            }
        }
        let mut index = 0;
        self.items.retain(|_| {
            index += 1;
            !drop.get(index - 1)
        });
    }

    /// Puts the skipped prepares back. Another division into parts may need them.
    pub(crate) fn restore_skipped(&mut self) {
        if !self.skipped_prepares.is_empty() {
            self.items.append(&mut self.skipped_prepares);
            self.items.sort_by_key(|apply| apply.item().seqno());
        }
    }

    /// Returns the ranges of the parts. A part has at most one prepare of each key: the last one. Earlier ones were
    /// completed within the part. A prepare that is completed in a later part is kept, because replay of the log needs
    /// it to restore the commit.
    fn cut(&mut self, max_items: usize, max_bytes: usize) -> Vec<Range<usize>> {
        let mut cuts = Vec::new();
        let mut drop = BitSet::new(self.items.len());
        let mut dropped = 0;
        let mut newer = SeenKeys::default();
        let (mut start, mut bytes) = (0, 0);
        for index in 0..=self.items.len() {
            let size = self
                .items
                .get(index)
                .map_or(0, |apply| apply.item().heap_bytes());
            let full = index - start >= max_items || bytes + size > max_bytes;
            if index == self.items.len() || (full && index > start && self.may_end(index)) {
                let before = dropped;
                newer.clear();
                for old in (start..index).rev() {
                    let apply = &self.items[old];
                    if !apply.is_committed_namespace() && newer.has_or_put(&self.items, old) {
                        drop.set(old);
                        dropped += 1;
                    }
                }
                cuts.push(start - before..index - dropped);
                (start, bytes) = (index, 0);
            }
            bytes += size;
        }
        if dropped > 0 {
            let mut index = 0;
            let skipped_prepares = self.items.extract_if(.., |_| {
                index += 1;
                drop.get(index - 1)
            });
            self.skipped_prepares.extend(skipped_prepares);
        }
        cuts
    }

    /// Returns whether a part may end before `index`: every prepare that is not completed by then must be in this part
    /// or in the file.
    fn may_end(&self, index: usize) -> bool {
        let items = &self.items[..index];
        let Some(last) = items.last().map(|apply| apply.item().seqno()) else {
            return true;
        };
        let there = |prepared: Seqno| {
            prepared <= self.from
                || items
                    .binary_search_by_key(&prepared, |apply| apply.item().seqno())
                    .is_ok()
        };
        let first = self.ends.partition_point(|end| end.at <= last);
        self.ends[first..]
            .iter()
            .take_while(|end| end.prepared <= last)
            .all(|end| there(end.prepared))
    }

    /// Returns the progress of the file when it has everything up to `seqno`, but not the whole batch.
    pub(crate) fn progress_at(&self, seqno: Seqno) -> ApplyProgress {
        if seqno <= self.from {
            return self.before;
        }
        let mut progress = self.before;
        let count = self
            .items
            .partition_point(|apply| apply.item().seqno() <= seqno);
        progress.pass(&self.items[..count]);
        if let Some(end) = self.ends.iter().rfind(|end| end.at <= seqno) {
            progress.completed = end.prepared;
        }
        let start = self.before.consistent();
        let torn = DcpSnapshot::new(SnapshotKind::Disk, start, self.state.snap_end);
        // An active vBucket writes no snapshots. The log has the rest of the batch.
        let of_snapshot =
            self.disk_end > Seqno(0) || self.before.open.is_some() || self.after.open.is_some();
        ApplyProgress {
            high: seqno,
            open: of_snapshot.then_some(torn),
            ..self.known(progress, seqno)
        }
    }

    /// Returns `progress` with what is known between two parts, at `upto`.
    fn known(&self, progress: ApplyProgress, upto: Seqno) -> ApplyProgress {
        let (visible, completed) = if upto < self.disk_end {
            (self.before.visible, self.before.completed)
        } else {
            (progress.visible, progress.completed)
        };
        ApplyProgress {
            visible,
            prepared: progress.prepared.max(completed),
            completed,
            ..progress
        }
    }
}

impl PrepareEnd {
    /// Returns the completion that `change` records, if its prepare must exist. An abort inside a disk snapshot
    /// (`in_disk`) may have no prepare and needs none.
    pub(crate) fn of(change: &Change, in_disk: bool) -> Option<Self> {
        match change {
            Change::Abort { .. } if in_disk => None,
            Change::Commit { item, prepared } | Change::Abort { item, prepared } => Some(Self {
                at: item.seqno(),
                prepared: *prepared,
            }),
            _ => None,
        }
    }
}

/// A set of keys, as indices of items.
#[derive(Default)]
struct SeenKeys {
    met: HashTable<u32>,
    hasher: RandomState,
}

impl SeenKeys {
    fn clear(&mut self) {
        self.met.clear();
    }

    /// Adds the key of the item at `index`. Returns whether it was present before.
    fn has_or_put(&mut self, items: &[FileChange], index: usize) -> bool {
        let key = |index: u32| items[index as usize].item().key();
        let index = u32::try_from(index).expect("fewer changes than 2^32 wait");
        let hash = self.hasher.hash_one(key(index));
        let entry = self.met.entry(
            hash,
            |other| key(*other) == key(index),
            |other| self.hasher.hash_one(key(*other)),
        );
        match entry {
            Entry::Occupied(_) => true,
            Entry::Vacant(slot) => {
                slot.insert(index);
                false
            }
        }
    }
}

/// One bit for each item.
struct BitSet(Vec<u64>);

impl BitSet {
    fn new(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)])
    }

    fn set(&mut self, index: usize) {
        self.0[index / 64] |= 1 << (index % 64);
    }

    fn get(&self, index: usize) -> bool {
        self.0[index / 64] & (1 << (index % 64)) != 0
    }
}
