//! The argon2id hash of a password (RFC 9106), for logins that send the password itself: SASL PLAIN and HTTP Basic.
//!
//! Logins with SCRAM need the keys of [`Credentials`](crate::credential::Credentials) instead, whose hash function is that of
//! their mechanism.

use std::fmt;

use argon2::{Algorithm, Argon2, Params, Version};
use subtle::{Choice, ConstantTimeEq};
use zeroize::Zeroizing;

use crate::error::{AuthError, StoreProblem};
use crate::hash::{Hash, Secret};
use crate::limits::{
    FALLBACK_KEY_BYTES, HASH_BYTES, HASH_MEMORY_KIB_DEFAULT, HASH_MEMORY_KIB_MAX,
    HASH_MEMORY_KIB_MIN, HASH_PASSES_DEFAULT, HASH_PASSES_MAX, HASH_PASSES_MIN, SALT_BYTES,
};
use crate::random::random_bytes;

/// The cost of an argon2id hash. It has one lane, as logins share one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashCost {
    memory_kib: u32,
    passes: u32,
}

impl HashCost {
    /// The default cost: the second of the equivalent choices in OWASP's recommendation, 19 MiB and 2 passes.
    pub const DEFAULT: Self = Self {
        memory_kib: HASH_MEMORY_KIB_DEFAULT,
        passes: HASH_PASSES_DEFAULT,
    };

    /// Creates a cost from the memory in KiB and the number of passes over it.
    ///
    /// # Errors
    /// [`AuthError::BadHashCost`] outside [`HASH_MEMORY_KIB_MIN`]`..=`[`HASH_MEMORY_KIB_MAX`] and
    /// [`HASH_PASSES_MIN`]`..=`[`HASH_PASSES_MAX`].
    pub fn new(memory_kib: u32, passes: u32) -> Result<Self, AuthError> {
        let is_sane = (HASH_MEMORY_KIB_MIN..=HASH_MEMORY_KIB_MAX).contains(&memory_kib)
            && (HASH_PASSES_MIN..=HASH_PASSES_MAX).contains(&passes);
        match is_sane {
            true => Ok(Self { memory_kib, passes }),
            false => Err(AuthError::BadHashCost { memory_kib, passes }),
        }
    }

    /// Returns the memory in KiB.
    #[must_use]
    pub const fn memory_kib(self) -> u32 {
        self.memory_kib
    }

    /// Returns the number of passes over the memory.
    #[must_use]
    pub const fn passes(self) -> u32 {
        self.passes
    }

    /// Computes the hash.
    fn hash(self, password: &[u8], salt: &[u8]) -> Result<Secret, AuthError> {
        let params = Params::new(self.memory_kib, self.passes, 1, Some(HASH_BYTES));
        let params = params.expect("the cost is within argon2's own limits");
        let mut out = Zeroizing::new(vec![0; HASH_BYTES]);
        let made = Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into(password, salt, &mut out);
        match made {
            Ok(()) => Ok(out),
            // Password and salt have limits of their own, so nothing but memory can be missing.
            Err(_) => Err(AuthError::NoMemoryForHash(self.memory_kib)),
        }
    }
}

impl Default for HashCost {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The hash of a password, with its cost and salt.
#[derive(Clone)]
pub(crate) struct PasswordHash {
    cost: HashCost,
    salt: Vec<u8>,
    hash: Secret,
}

impl PasswordHash {
    /// Computes the hash of a password with a fresh salt.
    pub(crate) fn derive(password: &[u8], cost: HashCost) -> Result<Self, AuthError> {
        let salt = random_bytes::<SALT_BYTES>()?.to_vec();
        Ok(Self {
            hash: cost.hash(password, &salt)?,
            salt,
            cost,
        })
    }

    /// Returns the hash that replaces that of a missing user, see
    /// [`Credential::fallback`](crate::credential::Credential::fallback).
    pub(crate) fn fallback(key: &[u8; FALLBACK_KEY_BYTES], user: &str, cost: HashCost) -> Self {
        let derive = |label: &[u8], len: usize| {
            let mut bytes = Hash::Sha512.hmac(key, &[label, user.as_bytes()]);
            bytes.truncate(len);
            bytes
        };
        Self {
            cost,
            salt: derive(b"argon2id salt", SALT_BYTES).to_vec(),
            hash: derive(b"argon2id hash", HASH_BYTES),
        }
    }

    /// Creates a stored hash.
    pub(crate) fn stored(
        cost: HashCost,
        salt: Vec<u8>,
        hash: Secret,
    ) -> Result<Self, StoreProblem> {
        match hash.len() {
            HASH_BYTES => Ok(Self { cost, salt, hash }),
            _ => Err(StoreProblem::Key),
        }
    }

    /// Returns whether this is the password. Costs one argon2id. Without memory for it no password is.
    pub(crate) fn fits_password(&self, password: &[u8]) -> Choice {
        match self.cost.hash(password, &self.salt) {
            Ok(hash) => hash.ct_eq(&self.hash),
            Err(_) => Choice::from(0),
        }
    }

    pub(crate) const fn cost(&self) -> HashCost {
        self.cost
    }

    pub(crate) fn salt(&self) -> &[u8] {
        &self.salt
    }

    pub(crate) fn hash(&self) -> &[u8] {
        &self.hash
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordHash")
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A vector of the reference implementation (phc-winner-argon2, `src/test.c`): version 0x13, 2 passes, 256 KiB, 1 lane.
    #[test]
    fn argon2id_matches_the_reference_implementation() {
        let cost = HashCost::new(256, 2).unwrap();
        let hash = cost.hash(b"password", b"somesalt").unwrap();
        let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "9dfeb910e80bad0311fee20f9c0e2b12c17987b4cac90c2ef54d5b3021c68bfe"
        );
    }

    #[test]
    fn hash_cost_has_limits() {
        for (memory_kib, passes) in [
            (HASH_MEMORY_KIB_MIN - 1, 2),
            (HASH_MEMORY_KIB_MAX + 1, 2),
            (64, HASH_PASSES_MIN - 1),
            (64, HASH_PASSES_MAX + 1),
        ] {
            let refused = HashCost::new(memory_kib, passes);
            assert_eq!(refused, Err(AuthError::BadHashCost { memory_kib, passes }));
        }
        for (memory_kib, passes) in [
            (HASH_MEMORY_KIB_MIN, HASH_PASSES_MIN),
            (HASH_MEMORY_KIB_MAX, HASH_PASSES_MAX),
        ] {
            assert!(HashCost::new(memory_kib, passes).is_ok());
        }
    }

    #[test]
    fn debug_text_of_a_hash_has_no_secret() {
        let cost = HashCost::new(64, 1).unwrap();
        let hash = PasswordHash::derive(b"pencil", cost).unwrap();
        assert_eq!(
            format!("{hash:?}"),
            "PasswordHash { cost: HashCost { memory_kib: 64, passes: 1 }, .. }"
        );
        assert!(bool::from(hash.fits_password(b"pencil")));
        assert!(!bool::from(hash.fits_password(b"pencils")));
    }
}
