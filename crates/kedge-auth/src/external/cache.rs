//! A cache of logins that a directory has verified, so that only the first of many asks it.
//!
//! It stores no password: only an HMAC of user and password under a random key that is never stored. Times are arguments.
//!
//! Invariants:
//! * An entry is valid for the settings under which it was made, and for no others.
//! * There are never more entries than the settings allow. When it is full, the entry that ends first gives way.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::{ExternalGrants, LdapSettings};
use crate::error::AuthError;
use crate::hash::{Hash, Secret};
use crate::random::random_bytes;

struct Entry {
    tag: Secret,
    grants: Arc<ExternalGrants>,
    ends_ms: u64,
}

/// Verified logins of external users, at most one for each.
pub struct ExternalCache {
    key: Zeroizing<[u8; 32]>,
    settings: Option<Arc<LdapSettings>>,
    entries: HashMap<String, Entry>,
}

impl ExternalCache {
    /// Creates an empty cache.
    ///
    /// # Errors
    /// [`AuthError::NoRandomness`].
    pub fn new() -> Result<Self, AuthError> {
        Ok(Self {
            key: Zeroizing::new(random_bytes()?),
            settings: None,
            entries: HashMap::new(),
        })
    }

    /// Returns the grants of a login that was verified under these settings, if it still counts.
    #[must_use]
    pub fn get(
        &self,
        (user, password): (&str, &[u8]),
        settings: &Arc<LdapSettings>,
        now_ms: u64,
    ) -> Option<Arc<ExternalGrants>> {
        if !self.is_of(settings) {
            return None;
        }
        let entry = self.entries.get(user).filter(|it| now_ms < it.ends_ms)?;
        let tag = self.tag(user, password);
        bool::from(entry.tag.ct_eq(&tag)).then(|| entry.grants.clone())
    }

    /// Records a verified login. Those that were verified under other settings are forgotten.
    pub fn insert(
        &mut self,
        (user, password): (&str, &[u8]),
        grants: Arc<ExternalGrants>,
        settings: &Arc<LdapSettings>,
        now_ms: u64,
    ) {
        if !self.is_of(settings) {
            self.entries.clear();
            self.settings = Some(settings.clone());
        }
        let max = usize::try_from(settings.max_cache_size).unwrap_or(usize::MAX);
        if max == 0 || settings.cache_value_lifetime == 0 {
            return;
        }
        if self.entries.len() >= max && !self.entries.contains_key(user) {
            self.make_room(now_ms);
        }
        let entry = Entry {
            tag: self.tag(user, password),
            grants,
            ends_ms: now_ms.saturating_add(settings.cache_value_lifetime.into()),
        };
        self.entries.insert(user.to_owned(), entry);
    }

    /// Forgets a user, whose password was wrong.
    pub fn forget(&mut self, user: &str) {
        self.entries.remove(user);
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn make_room(&mut self, now_ms: u64) {
        self.entries.retain(|_, entry| now_ms < entry.ends_ms);
        let entries = self.entries.iter();
        let first = entries.min_by_key(|(_, entry)| entry.ends_ms);
        if let Some(user) = first.map(|(user, _)| user.clone()) {
            self.entries.remove(&user);
        }
    }

    fn is_of(&self, settings: &Arc<LdapSettings>) -> bool {
        let own = self.settings.as_ref();
        own.is_some_and(|own| Arc::ptr_eq(own, settings) || own == settings)
    }

    /// Returns the tag of a login. A name contains no NUL, so no two pairs have the same input.
    fn tag(&self, user: &str, password: &[u8]) -> Secret {
        Hash::Sha256.hmac(&*self.key, &[user.as_bytes(), b"\0", password])
    }
}

impl fmt::Debug for ExternalCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalCache")
            .field("entries", &self.entries.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: u64 = 300_000;

    fn settings(max_cache_size: u32) -> Arc<LdapSettings> {
        Arc::new(LdapSettings {
            max_cache_size,
            ..LdapSettings::default()
        })
    }

    fn grants() -> Arc<ExternalGrants> {
        Arc::default()
    }

    #[test]
    fn cached_login_ends_with_its_lifetime_and_fits_one_password() {
        let (mut cache, settings) = (ExternalCache::new().unwrap(), settings(2));
        let ada = ("ada", &b"one"[..]);
        assert_eq!(cache.get(ada, &settings, 0), None);
        cache.insert(ada, grants(), &settings, 5);
        assert!(cache.get(ada, &settings, 5 + LIFETIME - 1).is_some());
        assert_eq!(cache.get(ada, &settings, 5 + LIFETIME), None);
        assert_eq!(cache.get(("ada", b"two"), &settings, 5), None);
        assert_eq!(cache.get(("bob", b"one"), &settings, 5), None);
        cache.forget("ada");
        assert_eq!(cache.get(ada, &settings, 5), None);
    }

    #[test]
    fn changed_settings_flush_the_cache() {
        let (mut cache, before) = (ExternalCache::new().unwrap(), settings(9));
        let ada = ("ada", &b"one"[..]);
        cache.insert(ada, grants(), &before, 0);
        let same = Arc::new(LdapSettings::clone(&before));
        assert!(cache.get(ada, &same, 1).is_some());
        let after = Arc::new(LdapSettings {
            hosts: vec!["other".to_owned()],
            ..LdapSettings::clone(&before)
        });
        assert_eq!(cache.get(ada, &after, 1), None);
        cache.insert(("bob", b"x"), grants(), &after, 1);
        assert_eq!((cache.len(), cache.get(ada, &before, 1)), (1, None));
    }

    #[test]
    fn full_cache_forgets_the_login_that_ends_first() {
        let (mut cache, settings) = (ExternalCache::new().unwrap(), settings(2));
        for (at, user) in ["ada", "bob", "eve"].into_iter().enumerate() {
            cache.insert((user, b"x"), grants(), &settings, at as u64);
        }
        let has = |user: &str| cache.get((user, b"x"), &settings, 3).is_some();
        assert_eq!(["ada", "bob", "eve"].map(has), [false, true, true]);
        assert_eq!(cache.len(), 2);
    }

    #[test]
    fn cache_of_no_size_or_no_lifetime_remembers_nothing() {
        for settings in [
            settings(0),
            Arc::new(LdapSettings {
                cache_value_lifetime: 0,
                ..LdapSettings::default()
            }),
        ] {
            let mut cache = ExternalCache::new().unwrap();
            cache.insert(("ada", b"x"), grants(), &settings, 0);
            assert!(cache.is_empty());
        }
    }
}
