//! An immutable set of data keys, one of which may be active.

use std::sync::Arc;

use crate::key::DataKey;

/// A data key and its state.
#[derive(Clone, Debug)]
pub(super) struct KeyEntry {
    pub(super) key: Arc<DataKey>,
    /// `true` if it is to be replaced in all data.
    pub(super) is_retired: bool,
}

/// The data keys of a keyring at one moment, the oldest first.
#[derive(Clone, Debug, Default)]
pub struct KeySet {
    pub(super) entries: Vec<KeyEntry>,
    /// `true` if the last key is that of new data.
    pub(super) has_active: bool,
}

impl PartialEq for KeySet {
    fn eq(&self, other: &Self) -> bool {
        let entry = |it: &KeyEntry| (it.key.id().to_owned(), it.is_retired);
        let of_each = |set: &Self| set.entries.iter().map(entry).collect::<Vec<_>>();
        self.has_active == other.has_active && of_each(self) == of_each(other)
    }
}

impl Eq for KeySet {}

impl KeySet {
    /// Returns the key of new data; `None` if it is not encrypted. Whoever creates something with the key keeps the `Arc` until a
    /// search finds it.
    #[must_use]
    pub fn active(&self) -> Option<&Arc<DataKey>> {
        self.entries
            .last()
            .filter(|_| self.has_active)
            .map(|it| &it.key)
    }

    /// Returns the key with this id.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<&Arc<DataKey>> {
        self.iter().find(|key| key.id() == id)
    }

    /// Returns all keys, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<DataKey>> {
        self.entries.iter().map(|it| &it.key)
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns `true` if there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns `true` if data with this key, or without one, is to be written again: with the active key, or without one if none is
    /// active.
    #[must_use]
    pub fn replaces(&self, id: Option<&str>) -> bool {
        let Some(active) = self.active() else {
            return id.is_some();
        };
        let Some(id) = id.filter(|id| *id != active.id()) else {
            return id.is_none();
        };
        let entry = self.entries.iter().find(|it| it.key.id() == id);
        // Without the key nobody can read the data.
        entry.is_some_and(|it| it.is_retired)
    }

    pub(super) fn add(&mut self, key: DataKey) {
        self.entries.push(KeyEntry {
            key: Arc::new(key),
            is_retired: false,
        });
        self.has_active = true;
    }

    pub(super) fn deactivate(&mut self) {
        self.has_active = false;
    }

    /// Retires keys, except the active one.
    pub(super) fn retire(&mut self, is_old: impl Fn(&DataKey) -> bool) {
        let older = self.entries.len() - usize::from(self.has_active);
        for entry in &mut self.entries[..older] {
            entry.is_retired |= is_old(&entry.key);
        }
    }

    /// Returns the keys, except the active one, that only this set has.
    pub(super) fn unleased(&self) -> Vec<String> {
        let older = self.entries.len() - usize::from(self.has_active);
        let entries = self.entries[..older].iter();
        let unleased = entries.filter(|it| Arc::strong_count(&it.key) == 1);
        unleased.map(|it| it.key.id().to_owned()).collect()
    }

    /// Removes keys, except the active one.
    pub(super) fn remove(&mut self, ids: &[String]) {
        let active = self.active().map(|key| key.id().to_owned());
        self.entries.retain(|it| {
            let id = it.key.id();
            active.as_deref() == Some(id) || !ids.iter().any(|removed| removed == id)
        });
    }
}
