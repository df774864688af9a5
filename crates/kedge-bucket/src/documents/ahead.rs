//! Preparation of long documents before their vBucket is locked, which shortens the time that the lock is held.

use super::component::{DocumentCommands, Write};
use kedge_types::limits::LONG_VALUE_BYTES;
use kedge_types::{DocKey, VbId};
use kedge_vbucket::{
    Item, KeyHash, Modify, NewValue, PrebuiltItem, StoreKeepingXattrs, StoreMode, any_long_value,
    prefetch_value,
};

impl DocumentCommands {
    /// Requests the state of a vBucket from memory, for [`Self::prefetch_bucket`] and for the command.
    pub fn prefetch_vbucket(&self, vb: VbId) {
        if let Some(vbucket) = self.core.vbuckets.get(vb.index()) {
            prefetch_value(vbucket);
        }
    }

    /// Requests the part of the hash table that has a key from memory, and returns the hash of the key for
    /// [`Self::prefetch_document`]. `None` if there is no such vBucket.
    pub fn prefetch_bucket(&self, vb: VbId, key: &DocKey) -> Option<KeyHash> {
        self.core.look(vb, |vbucket| {
            let hash = vbucket.table().hash(key.as_bytes());
            vbucket.table().prefetch_bucket(hash);
            hash
        })
    }

    /// Requests the document of a key from memory, so that a command for it need not wait for that. It changes nothing.
    pub fn prefetch_document(&self, vb: VbId, hash: KeyHash) {
        self.core
            .look(vb, |vbucket| vbucket.table().prefetch_items(hash));
    }

    /// Returns the document or tombstone of a key, if its value is in memory. The state of the vBucket is not checked, and
    /// nothing is counted.
    #[must_use]
    pub fn peek(&self, vb: VbId, key: &DocKey) -> Option<Item> {
        self.core
            .look(vb, |vbucket| vbucket.store().peek(key))
            .flatten()
    }

    /// Returns the document or tombstone of a key, if it is long and its value is in memory.
    pub(super) fn peek_long(&self, vb: VbId, key: &DocKey) -> Option<Item> {
        let existing = any_long_value().then(|| self.peek(vb, key))?;
        existing.filter(Item::is_long)
    }

    /// Prepares a value together with the extended attributes of the existing document, if that makes a long document.
    pub(super) fn store_behind<'a>(
        &self,
        write: &Write<'_>,
        mode: StoreMode,
        value: &'a NewValue<'a>,
        flags: u32,
    ) -> Option<StoreKeepingXattrs<'a>> {
        let is_long_value = value.bytes.len() >= LONG_VALUE_BYTES;
        if !is_long_value && !any_long_value() {
            return None;
        }
        let existing = self.peek(write.vb, write.key)?;
        if !existing.has_xattrs() || !(is_long_value || existing.is_long()) {
            return None;
        }
        let change = StoreKeepingXattrs::new(mode, value, flags);
        change.prepare(write.key, Some(&existing));
        Some(change)
    }

    /// Prepares a change, if it makes a long document.
    pub(crate) fn prepare(&self, write: &Write<'_>, change: &dyn Modify) {
        let is_long_value = change.bytes() >= LONG_VALUE_BYTES;
        if !is_long_value && !any_long_value() {
            return;
        }
        let existing = self.peek(write.vb, write.key);
        if is_long_value || existing.as_ref().is_some_and(Item::is_long) {
            change.prepare(write.key, existing.as_ref());
        }
    }
}

/// Returns a copy of a document's value for a version with other metadata.
pub(super) fn copied_ahead(existing: Option<&Item>) -> Option<PrebuiltItem<'_>> {
    let existing = existing?;
    let key = DocKey::from_prefixed(existing.key()).ok()?;
    PrebuiltItem::of(&key, existing.value())
}
