//! A cache of verified passwords, so that only the first of many requests pays for the hash.
//!
//! It stores no password and nothing that a slow hash should protect beyond this process: only an HMAC of user and password
//! under a random key that is never stored.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::error::AuthError;
use crate::hash::{Hash, Secret};
use crate::limits::VERIFIED_MAX;
use crate::random::random_bytes;

/// The key of one attempt in the cache, made of user and password.
#[derive(Clone)]
pub(crate) struct Tag(Secret);

/// A cache of at most one verified password per user, and of at most [`VERIFIED_MAX`] users.
pub(crate) struct VerifiedCache {
    key: Zeroizing<[u8; 32]>,
    verified: Mutex<HashMap<String, Tag>>,
}

impl VerifiedCache {
    pub(crate) fn new() -> Result<Self, AuthError> {
        Ok(Self {
            key: Zeroizing::new(random_bytes()?),
            verified: Mutex::default(),
        })
    }

    /// Returns the tag of an attempt. A valid name contains no NUL, so no two pairs have the same input.
    pub(crate) fn tag(&self, user: &str, password: &[u8]) -> Tag {
        Tag(Hash::Sha256.hmac(&*self.key, &[user.as_bytes(), b"\0", password]))
    }

    /// Returns whether exactly this attempt was verified before.
    pub(crate) fn holds(&self, user: &str, tag: &Tag) -> bool {
        self.lock()
            .get(user)
            .is_some_and(|known| bool::from(known.0.ct_eq(&tag.0)))
    }

    /// Records a verified password. When the cache is full, it forgets any other user, who pays for the hash once more.
    pub(crate) fn insert(&self, user: &str, tag: Tag) {
        let mut verified = self.lock();
        if verified.len() >= VERIFIED_MAX && !verified.contains_key(user) {
            let victim = verified.keys().next().cloned();
            victim.map(|v| verified.remove(&v));
        }
        verified.insert(user.to_owned(), tag);
    }

    /// Takes over the entries of another cache with the same key for the users for whom `keep` holds, unless this cache
    /// has newer ones.
    pub(crate) fn take_over(&self, before: &Self, keep: impl Fn(&str) -> bool) {
        assert!(self.key == before.key, "tags of another key mean nothing");
        let held = before.lock().clone();
        let mut verified = self.lock();
        for (user, tag) in held {
            if verified.len() < VERIFIED_MAX && keep(&user) {
                verified.entry(user).or_insert(tag);
            }
        }
    }

    /// Forgets a user. Called when the user is removed.
    pub(crate) fn forget(&self, user: &str) {
        self.lock().remove(user);
    }

    // A panic elsewhere cannot leave the map half changed, so a poisoned lock is still usable.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Tag>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.lock().len()
    }
}

impl Clone for VerifiedCache {
    /// Returns an empty cache: the copy belongs to a store that may change independently.
    fn clone(&self) -> Self {
        Self {
            key: self.key.clone(),
            verified: Mutex::default(),
        }
    }
}

impl fmt::Debug for VerifiedCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifiedCache").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verified_cache_holds_only_verified_passwords() {
        let cache = VerifiedCache::new().unwrap();
        assert!(!cache.holds("ada", &cache.tag("ada", b"one")));
        cache.insert("ada", cache.tag("ada", b"one"));
        assert!(cache.holds("ada", &cache.tag("ada", b"one")));
        assert!(!cache.holds("ada", &cache.tag("ada", b"two")));
        assert!(!cache.holds("bob", &cache.tag("ada", b"one")));
        assert!(!cache.clone().holds("ada", &cache.tag("ada", b"one")));
        cache.insert("ada", cache.tag("ada", b"two"));
        assert!(
            !cache.holds("ada", &cache.tag("ada", b"one")),
            "one password per user"
        );
        cache.forget("ada");
        assert!(!cache.holds("ada", &cache.tag("ada", b"two")));
    }

    #[test]
    fn verified_cache_copy_keeps_entries_that_are_still_valid() {
        let before = VerifiedCache::new().unwrap();
        for user in ["ada", "bob"] {
            before.insert(user, before.tag(user, b"one"));
        }
        let after = before.clone();
        after.insert("eve", after.tag("eve", b"new"));
        after.take_over(&before, |user| user != "bob");
        assert!(after.holds("ada", &after.tag("ada", b"one")));
        assert!(!after.holds("bob", &after.tag("bob", b"one")));
        assert!(after.holds("eve", &after.tag("eve", b"new")));
    }

    #[test]
    fn verified_cache_is_bounded_and_keeps_the_newest() {
        let cache = VerifiedCache::new().unwrap();
        for n in 0..VERIFIED_MAX + 10 {
            let user = format!("user{n}");
            cache.insert(&user, cache.tag(&user, b"pw"));
            assert!(cache.holds(&user, &cache.tag(&user, b"pw")));
        }
        assert_eq!(cache.len(), VERIFIED_MAX);
    }
}
