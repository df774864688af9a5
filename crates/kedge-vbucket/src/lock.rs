//! Documents locked by GET_LOCKED.

use kedge_types::Now;
use std::collections::HashMap;

/// The locked keys with the ends of their locks, in nanoseconds of the monotonic clock. The CAS of a lock is the CAS of
/// the document, which gets a new one when it is locked. Locks are not persisted.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    until_ns: HashMap<Box<[u8]>, u64>,
}

impl Locks {
    /// Returns whether the key is locked. Removes the lock if it has expired.
    pub(crate) fn holds(&mut self, key: &[u8], now: Now) -> bool {
        if self.until_ns.is_empty() {
            return false;
        }
        match self.until_ns.get(key) {
            Some(until) if *until > now.mono_ns => true,
            Some(_) => {
                self.until_ns.remove(key);
                false
            }
            None => false,
        }
    }

    /// Returns whether the key is locked.
    pub(crate) fn is_locked(&self, key: &[u8], now: Now) -> bool {
        !self.until_ns.is_empty()
            && self
                .until_ns
                .get(key)
                .is_some_and(|until| *until > now.mono_ns)
    }

    pub(crate) fn remove(&mut self, key: &[u8]) {
        if !self.until_ns.is_empty() {
            self.until_ns.remove(key);
        }
    }

    /// Locks the key until `until_ns`.
    pub(crate) fn add(&mut self, key: &[u8], until_ns: u64) {
        self.until_ns.insert(key.into(), until_ns);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.until_ns.is_empty()
    }

    /// Removes expired locks.
    pub(crate) fn remove_expired(&mut self, now: Now) {
        self.until_ns.retain(|_, until| *until > now.mono_ns);
    }
}
