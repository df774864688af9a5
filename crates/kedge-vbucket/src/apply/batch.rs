//! The changes that are applied at once, cut into commits of the file.

use super::{ApplyProgress, FileChange, PersistedState};
use crate::checkpoint::Change;
use crate::snapshot::{Snapshot, SnapshotKind};
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use kedge_types::Seqno;
use std::hash::BuildHasher;
use std::ops::Range;

/// Older versions of a key are looked for among this many changes: a table of their keys stays small, and what is
/// written twice for it is little.
const WINDOW: usize = 1 << 17;

/// The end of a prepare.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrepareEnd {
    /// The seqno of its commit or abort.
    pub(crate) at: Seqno,
    /// The seqno of the prepare.
    pub(crate) prepared: Seqno,
}

/// All that a vBucket had to apply at one moment. [`ApplyBatch::parts`] gives what is to be written; then it goes
/// back to [`crate::VBucket::end_apply`], whatever came of it.
#[derive(Debug)]
pub struct ApplyBatch {
    /// In seqno order.
    pub(crate) items: Vec<FileChange>,
    /// Prepares that need not be written as long as the parts are those of the last cut.
    pub(crate) skipped_prepares: Vec<FileChange>,
    /// In order.
    pub(crate) ends: Vec<PrepareEnd>,
    /// Older versions of a key may stand beside newer ones.
    pub(crate) may_repeat: bool,
    pub(crate) before: ApplyProgress,
    pub(crate) after: ApplyProgress,
    pub(crate) state: PersistedState,
    pub(crate) history: u32,
    pub(crate) replaces_file: bool,
    pub(crate) removes_file: bool,
    /// The progress of the file before it is written.
    pub(crate) from: Seqno,
    pub(crate) upto: Seqno,
    /// The end of the last disk snapshot that a part of it is of: what is visible and what has ended is known there
    /// only.
    pub(crate) disk_end: Seqno,
}

/// One commit of the file.
#[derive(Debug)]
pub struct BatchPart<'a> {
    /// In seqno order, a key at most once in each namespace. Empty when only the state changed.
    pub items: &'a [FileChange],
    /// The state of the vBucket that this commit writes.
    pub state: PersistedState,
    /// The file has everything up to here then.
    pub upto: Seqno,
}

impl ApplyBatch {
    /// Names the history that it belongs to. When the vBucket has another by now, there is no use in writing it.
    #[must_use]
    pub fn history(&self) -> u32 {
        self.history
    }

    /// Returns whether the vBucket was reset: the file's content is void, and the first part goes into an empty one.
    #[must_use]
    pub fn replaces_file(&self) -> bool {
        self.replaces_file
    }

    /// Returns whether the vBucket was deleted: its file goes, and nothing is written. There is one part all the same,
    /// which is done when the file is gone.
    #[must_use]
    pub fn removes_file(&self) -> bool {
        self.removes_file
    }

    /// The file has everything up to here when all parts are written.
    #[must_use]
    pub fn upto(&self) -> Seqno {
        self.upto
    }

    /// The state of the vBucket in the file when all parts are written.
    #[must_use]
    pub fn state(&self) -> &PersistedState {
        &self.state
    }

    /// The state of the vBucket in a file that is made for this batch and is empty.
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

    /// The changes that are left; older versions may be among them until [`ApplyBatch::parts`] was called.
    #[must_use]
    pub fn items(&self) -> &[FileChange] {
        &self.items
    }

    /// Lets go of versions that newer ones among these make needless, and gives what is left in commits of at most
    /// `max_items` and `max_bytes` (of keys, values and their overhead), unless one item alone is larger, or the next
    /// place for a cut, after a few dozen items or some more than there were prepares at once, lies behind that. There
    /// is at least one.
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

    /// Documents and tombstones that are not in the hash table any more, and of which a newer version follows.
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

    /// With other parts, prepares may be needed that were not with the last.
    pub(crate) fn restore_skipped(&mut self) {
        if !self.skipped_prepares.is_empty() {
            self.items.append(&mut self.skipped_prepares);
            self.items.sort_by_key(|apply| apply.item().seqno());
        }
    }

    /// Where the parts lie. A key has one prepare in a part: the last; those before it have ended within the part. A
    /// prepare whose end stands in a later part stays: without it the log could not bring its commit back.
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

    /// Returns whether a part may end in front of `index`: prepares that have not ended there are in it, or in the
    /// file.
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

    /// The progress of the file when it has everything up to `seqno`, which is not all.
    pub(crate) fn marks_at(&self, seqno: Seqno) -> ApplyProgress {
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
        let torn = Snapshot::new(SnapshotKind::Disk, start, self.state.snap_end);
        // What an active writes is in no snapshot: the log has the rest.
        let of_snapshot =
            self.disk_end > Seqno(0) || self.before.open.is_some() || self.after.open.is_some();
        ApplyProgress {
            high: seqno,
            open: of_snapshot.then_some(torn),
            ..self.known(progress, seqno)
        }
    }

    /// The part of the progress that is known between two parts, at `upto`.
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
    /// The end of a prepare that has to be there for it. `in_disk`: it stands in a disk snapshot, where an abort may
    /// have no prepare, and needs none.
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

/// The keys that were met, as indices of items.
#[derive(Default)]
struct SeenKeys {
    met: HashTable<u32>,
    hasher: RandomState,
}

impl SeenKeys {
    fn clear(&mut self) {
        self.met.clear();
    }

    /// Returns whether the key of the item at `index` was met; now it has been.
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

/// A bit for each item.
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
