//! Documents locked by GET_LOCKED.

use kedge_types::Now;
use std::collections::HashMap;

/// Locked keys, and the ends of their locks (nanoseconds of the monotonic clock). The CAS that opens a lock is that of
/// the document, which got a new one when it was locked. Locks are not kept on disk.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    until_ns: HashMap<Box<[u8]>, u64>,
}

impl Locks {
    /// Returns whether the key is locked. A lock whose time is up is forgotten here.
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

    /// Locks the key until then.
    pub(crate) fn add(&mut self, key: &[u8], until_ns: u64) {
        self.until_ns.insert(key.into(), until_ns);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.until_ns.is_empty()
    }

    /// Forgets locks whose time is up and whose document nobody asked for since.
    pub(crate) fn forget_late(&mut self, now: Now) {
        self.until_ns.retain(|_, until| *until > now.mono_ns);
    }
}
