//! Remembers which passwords were verified, so that only the first of many requests pays PBKDF2.
//!
//! It holds no password and nothing that PBKDF2 was meant to protect beyond this process: only an
//! HMAC of user and password under a random key that is never stored.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::error::Error;
use crate::hash::{Hash, Secret};
use crate::limits::VERIFIED_MAX;
use crate::random::random_bytes;

/// The user and password of one attempt, as the cache knows them.
#[derive(Clone)]
pub(crate) struct Tag(Secret);

/// At most one verified password per user, and at most [`VERIFIED_MAX`] users.
pub(crate) struct VerifiedCache {
    key: Zeroizing<[u8; 32]>,
    verified: Mutex<HashMap<String, Tag>>,
}

impl VerifiedCache {
    pub(crate) fn new() -> Result<Self, Error> {
        Ok(Self {
            key: Zeroizing::new(random_bytes()?),
            verified: Mutex::default(),
        })
    }

    /// The tag of an attempt. A name that can be stored holds no NUL, so no two pairs share input.
    pub(crate) fn tag(&self, user: &str, password: &[u8]) -> Tag {
        Tag(Hash::Sha256.hmac(&*self.key, &[user.as_bytes(), b"\0", password]))
    }

    /// Whether just this was verified before.
    pub(crate) fn holds(&self, user: &str, tag: &Tag) -> bool {
        self.lock()
            .get(user)
            .is_some_and(|known| bool::from(known.0.ct_eq(&tag.0)))
    }

    /// Remembers a verified password. When full, any other user is forgotten: it pays once more.
    pub(crate) fn insert(&self, user: &str, tag: Tag) {
        let mut verified = self.lock();
        if verified.len() >= VERIFIED_MAX && !verified.contains_key(user) {
            let victim = verified.keys().next().cloned();
            victim.map(|v| verified.remove(&v));
        }
        verified.insert(user.to_owned(), tag);
    }

    /// Takes over what another cache with the same key holds of the users for whom `keep` holds, unless it has something
    /// newer.
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

    /// Forgets a user; to be called when it goes.
    pub(crate) fn forget(&self, user: &str) {
        self.lock().remove(user);
    }

    // A panic elsewhere cannot leave the map half changed, so a poisoned lock is as good as any.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Tag>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.lock().len()
    }
}

impl Clone for VerifiedCache {
    /// A copy starts empty: it belongs to a store that may change on its own.
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
    fn holds_just_what_was_verified() {
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
    fn a_copy_takes_over_what_still_holds() {
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
    fn is_bounded_and_keeps_the_newest() {
        let cache = VerifiedCache::new().unwrap();
        for n in 0..VERIFIED_MAX + 10 {
            let user = format!("user{n}");
            cache.insert(&user, cache.tag(&user, b"pw"));
            assert!(cache.holds(&user, &cache.tag(&user, b"pw")));
        }
        assert_eq!(cache.len(), VERIFIED_MAX);
    }
}
