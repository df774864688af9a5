//! Items and document changes that are prepared before a vBucket is locked.

use crate::item::{Draft, Item};
use crate::modify::Modified;
use kedge_types::limits::LONG_VALUE_BYTES;
use kedge_types::{DocKey, Status};
use std::cell::Cell;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// An item with a long value, copied before the vBucket is locked. A write that stores exactly this value uses the item
/// instead of copying the value under the lock.
pub struct PrebuiltItem<'a> {
    value: &'a [u8],
    draft: Cell<Option<Draft>>,
}

impl<'a> PrebuiltItem<'a> {
    /// Copies `key` and `value` into an item. Returns `None` for a value shorter than [`LONG_VALUE_BYTES`], for which
    /// the extra step is not worth its cost.
    #[must_use]
    pub fn of(key: &DocKey, value: &'a [u8]) -> Option<Self> {
        (value.len() >= LONG_VALUE_BYTES).then(|| Self {
            value,
            draft: Cell::new(Some(Draft::new(key.as_bytes(), &[value]))),
        })
    }

    /// Returns whether a write has stored the item.
    #[must_use]
    pub fn is_used(&self) -> bool {
        let draft = self.draft.take();
        let is_used = draft.is_none();
        self.draft.set(draft);
        is_used
    }

    /// Takes the item if `value` is the slice that it was copied from.
    pub(crate) fn take(&self, value: &[u8]) -> Option<Draft> {
        std::ptr::eq(self.value, value).then(|| self.draft.take())?
    }
}

impl fmt::Debug for PrebuiltItem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrebuiltItem")
            .field("bytes", &self.value.len())
            .finish()
    }
}

/// The result of a document change that was computed before the vBucket was locked. The result is valid only while the
/// document is unchanged.
#[derive(Debug)]
pub struct Precomputed<T>(Mutex<Option<(Option<Item>, T)>>);

impl<T> Default for Precomputed<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Precomputed<T> {
    /// Saves the result of a change of the document `there`, or of no document.
    pub fn keep(&self, there: Option<&Item>, made: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((there.cloned(), made));
    }

    /// Takes the result if `there` is the document that it was computed from.
    pub fn take(&self, there: Option<&Item>) -> Option<T> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (with, made) = kept?;
        let is_same = match (&with, there) {
            // The saved item holds a reference, so no other allocation has the same address.
            (Some(with), Some(there)) => std::ptr::eq(with.value(), there.value()),
            (None, None) => true,
            _ => false,
        };
        is_same.then_some(made)
    }
}

impl Precomputed<Result<Modified, Status>> {
    /// Computes the change of a live document and saves the result. A tombstone counts as no document.
    pub(crate) fn prepare(
        &self,
        key: &DocKey,
        there: Option<&Item>,
        change: impl FnOnce(Option<&Item>) -> Result<Modified, Status>,
    ) {
        let there = there.filter(|there| !there.is_deleted());
        self.keep(there, change(there).map(|made| made.drafted(key)));
    }
}
