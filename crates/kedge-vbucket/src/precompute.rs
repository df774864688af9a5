//! Parts of writes of long values that are made before a vBucket is locked, so that others do not wait while they are copied.

use crate::item::{Draft, Item};
use crate::modify::Modified;
use kedge_types::limits::LONG_VALUE_BYTES;
use kedge_types::{DocKey, Status};
use std::cell::Cell;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// The item of a value that a write may store as it is.
pub struct PrebuiltItem<'a> {
    value: &'a [u8],
    draft: Cell<Option<Draft>>,
}

impl<'a> PrebuiltItem<'a> {
    /// Of a value that is worth it: a long one.
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

    /// The item, if it is of these very bytes.
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

/// The outcome of a change of a document, worked out ahead of time. It counts if the document is still the same.
#[derive(Debug)]
pub struct Precomputed<T>(Mutex<Option<(Option<Item>, T)>>);

impl<T> Default for Precomputed<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Precomputed<T> {
    /// Keeps what the change came to with this document, or without one.
    pub fn keep(&self, there: Option<&Item>, made: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((there.cloned(), made));
    }

    /// Takes the outcome, if it was worked out with the document that is there now.
    pub fn take(&self, there: Option<&Item>) -> Option<T> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (with, made) = kept?;
        let is_same = match (&with, there) {
            // It is held, so nothing else has its address.
            (Some(with), Some(there)) => std::ptr::eq(with.value(), there.value()),
            (None, None) => true,
            _ => false,
        };
        is_same.then_some(made)
    }
}

impl Precomputed<Result<Modified, Status>> {
    /// Works a change of a live document out, and keeps the outcome. A tombstone is no document to it.
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
