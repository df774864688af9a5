//! The list of unapplied changes.
//!
//! Invariants:
//! * The list is in seqno order. A change is removed as soon as the log has a newer version of its key, so a document
//!   that changes often is kept once, however long the log grows.
//! * The list is closed periodically, at a position where a batch may be cut. Prepares that were completed since the
//!   previous position are removed then. Prepares that were open at a position stay, because the part before a cut
//!   needs all prepares that are not completed in it.

use super::FileChange;
use super::batch::PrepareEnd;
use kedge_types::Seqno;

/// The number of changes after which the list is closed. With many open prepares it is closed later, so that at most
/// one prepare in [`CLOSE_PER_PREPARE`] changes stays without need.
const CLOSE_ITEMS: usize = 64;
const CLOSE_PER_PREPARE: usize = 8;
/// The least number of removed changes at which the list is compacted. More than half of its entries must be removed.
const GONE_MIN: usize = 64;

/// The number of entries that are read before a binary search: those of a cache line.
const GUESS_ITEMS: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct UnappliedList {
    /// The seqnos, kept apart from the items for a cache-friendly search.
    seqnos: Vec<Seqno>,
    items: Vec<Option<FileChange>>,
    gone: usize,
    ends: Vec<PrepareEnd>,
    /// The position where the list was last closed.
    closed: Seqno,
    /// The number of changes since then.
    since_closed: usize,
    /// The number of open prepares.
    under_way: usize,
    /// True if older versions of a key may be present beside newer ones.
    may_repeat: bool,
}

const _: () = assert!(size_of::<Option<FileChange>>() == 16);

impl UnappliedList {
    /// Joins the changes of a batch that was not written with those that arrived meanwhile.
    pub(crate) fn join(items: Vec<FileChange>, ends: Vec<PrepareEnd>, newer: Self) -> Self {
        let seqnos = items.iter().map(|apply| apply.item().seqno());
        let mut joined = Self {
            seqnos: seqnos.collect(),
            items: items.into_iter().map(Some).collect(),
            ends,
            may_repeat: true,
            ..newer
        };
        joined.seqnos.extend(newer.seqnos);
        joined.items.extend(newer.items);
        joined.ends.extend(newer.ends);
        joined
    }

    /// Takes all changes, the completions of prepares, and the flag whether older versions may be present beside newer
    /// ones.
    pub(crate) fn take(&mut self) -> (Vec<FileChange>, Vec<PrepareEnd>, bool) {
        let mut taken = std::mem::take(self);
        if taken.gone > 0 {
            taken.items.retain(Option::is_some);
        }
        // The conversion is one to one, so the allocation of the list is reused. It may be the largest one of the
        // process.
        let is_there = |apply: Option<FileChange>| apply.expect("what is gone was left out");
        let items = taken.items.into_iter().map(is_there).collect();
        (items, taken.ends, taken.may_repeat)
    }

    pub(crate) fn push(&mut self, apply: FileChange) {
        self.under_way += usize::from(matches!(apply, FileChange::Prepare(_)));
        self.since_closed += 1;
        self.seqnos.push(apply.item().seqno());
        self.items.push(Some(apply));
    }

    /// Records the completion of a prepare. The change itself is pushed next.
    pub(crate) fn end(&mut self, end: PrepareEnd) {
        // The prepare may have been in an earlier batch.
        self.under_way = self.under_way.saturating_sub(1);
        self.ends.push(end);
    }

    /// Closes the list if it is due. Returns the prepares that are no longer needed.
    pub(crate) fn close(&mut self) -> Vec<FileChange> {
        let Some(last) =
            self.seqnos.last().copied().filter(|_| {
                self.since_closed >= CLOSE_ITEMS.max(CLOSE_PER_PREPARE * self.under_way)
            })
        else {
            return Vec::new();
        };
        let before = std::mem::replace(&mut self.closed, last);
        self.since_closed = 0;
        let first = self.ends.partition_point(|end| end.at <= before);
        let ended = self.ends[first..].iter().map(|end| end.prepared);
        let ended: Vec<Seqno> = ended.filter(|prepared| *prepared > before).collect();
        ended
            .into_iter()
            .filter_map(|prepared| self.forget(prepared))
            .collect()
    }

    /// Removes and returns the change at `seqno`, which a newer version replaces.
    pub(crate) fn forget(&mut self, seqno: Seqno) -> Option<FileChange> {
        let index = self.index(seqno)?;
        let apply = self.items[index].take()?;
        self.gone += 1;
        if self.gone > GONE_MIN && self.gone * 2 > self.items.len() {
            self.give_back();
        }
        Some(apply)
    }

    /// Returns the index of the change at `seqno`. Few seqnos are left out, so it is looked for where it would be without gaps:
    /// that reads one cache line of a long list in most cases.
    fn index(&self, seqno: Seqno) -> Option<usize> {
        let first = *self.seqnos.first()?;
        let distance = usize::try_from(seqno.get().checked_sub(first.get())?).ok()?;
        let end = self.seqnos.len().min(distance + 1);
        let near = end.saturating_sub(GUESS_ITEMS);
        if self.seqnos[near] <= seqno {
            let index = self.seqnos[near..end].iter().rposition(|at| *at <= seqno)?;
            return (self.seqnos[near + index] == seqno).then_some(near + index);
        }
        self.seqnos[..near].binary_search(&seqno).ok()
    }

    fn give_back(&mut self) {
        let mut items = self.items.iter();
        self.seqnos
            .retain(|_| items.next().is_some_and(Option::is_some));
        self.items.retain(Option::is_some);
        self.gone = 0;
        // A completion matters only to cuts between its prepare and the next completion.
        let is_relevant = |(index, end): &(usize, &PrepareEnd)| {
            let next = self.ends.get(index + 1).map(|next| next.at);
            let first = self.seqnos.partition_point(|seqno| *seqno < end.prepared);
            next.is_none_or(|next| self.seqnos.get(first).is_some_and(|cut| *cut < next))
        };
        let ends = self.ends.iter().enumerate().filter(is_relevant);
        self.ends = ends.map(|(_, end)| *end).collect();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len() - self.gone
    }

    /// Returns the bytes of the list itself.
    pub(crate) fn list_bytes(&self) -> usize {
        self.items.capacity() * size_of::<Option<FileChange>>()
            + self.seqnos.capacity() * size_of::<Seqno>()
            + self.ends.capacity() * size_of::<PrepareEnd>()
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &FileChange> {
        self.items.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn index_is_that_of_a_binary_search(seqnos in proptest::collection::btree_set(1_u64..120, 0..100), first in 0_u64..1_000) {
            let seqnos: BTreeSet<u64> = seqnos.iter().map(|seqno| seqno + first).collect();
            let list = UnappliedList { seqnos: seqnos.iter().copied().map(Seqno).collect(), ..UnappliedList::default() };
            for seqno in (0..first + 130).map(Seqno) {
                prop_assert_eq!(list.index(seqno), list.seqnos.binary_search(&seqno).ok());
            }
        }
    }
}
