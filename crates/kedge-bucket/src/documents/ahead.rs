//! Long values are put together before their vBucket is locked: whoever waits for it, waits less.

use super::component::{Documents, Write};
use kedge_types::limits::LONG_VALUE_BYTES;
use kedge_types::{DocKey, VbId};
use kedge_vbucket::{
    Item, Modify, NewValue, PrebuiltItem, StoreKeepingXattrs, StoreMode, any_long_value,
};

impl Documents {
    /// The document or tombstone of a key, if memory has its value. Nothing is checked, and nothing counted.
    #[must_use]
    pub fn peek(&self, vb: VbId, key: &DocKey) -> Option<Item> {
        self.core
            .look(vb, |vbucket| vbucket.store().peek(key))
            .flatten()
    }

    /// The document or tombstone of a key, if it is long and memory has its value.
    pub(super) fn peek_long(&self, vb: VbId, key: &DocKey) -> Option<Item> {
        let there = any_long_value().then(|| self.peek(vb, key))?;
        there.filter(Item::is_long)
    }

    /// A value together with the extended attributes that it is going to stand behind, if that makes a long document.
    pub(super) fn store_behind<'a>(
        &self,
        write: &Write<'_>,
        mode: StoreMode,
        value: &'a NewValue<'a>,
        flags: u32,
    ) -> Option<StoreKeepingXattrs<'a>> {
        let brings_much = value.bytes.len() >= LONG_VALUE_BYTES;
        if !brings_much && !any_long_value() {
            return None;
        }
        let there = self.peek(write.vb, write.key)?;
        if !there.has_xattrs() || !(brings_much || there.is_long()) {
            return None;
        }
        let change = StoreKeepingXattrs::new(mode, value, flags);
        change.prepare(write.key, Some(&there));
        Some(change)
    }

    /// Works a change out, if it makes a long document.
    pub(crate) fn prepare(&self, write: &Write<'_>, change: &dyn Modify) {
        let brings_much = change.bytes() >= LONG_VALUE_BYTES;
        if !brings_much && !any_long_value() {
            return;
        }
        let there = self.peek(write.vb, write.key);
        if brings_much || there.as_ref().is_some_and(Item::is_long) {
            change.prepare(write.key, there.as_ref());
        }
    }
}

/// A copy of a value, which is going to have other metadata.
pub(super) fn copied_ahead(there: Option<&Item>) -> Option<PrebuiltItem<'_>> {
    let there = there?;
    let key = DocKey::from_prefixed(there.key()).ok()?;
    PrebuiltItem::of(&key, there.value())
}
