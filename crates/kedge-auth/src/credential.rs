//! The stored credential of a password, per hash function (RFC 5802 section 3).

use std::fmt;

use subtle::{Choice, ConstantTimeEq};
use zeroize::Zeroizing;

use crate::error::AuthError;
use crate::hash::{Hash, Secret};
use crate::limits::{FALLBACK_KEY_BYTES, SALT_BYTES};
use crate::random::random_bytes;

/// Salt, iterations, StoredKey and ServerKey for one hash function.
#[derive(Clone)]
pub(crate) struct Credential {
    pub(crate) hash: Hash,
    pub(crate) iterations: u32,
    pub(crate) salt: Vec<u8>,
    pub(crate) stored_key: Secret,
    pub(crate) server_key: Secret,
}

impl Credential {
    /// Derives the keys of a password. Costs one PBKDF2.
    pub(crate) fn derive(hash: Hash, password: &[u8], salt: Vec<u8>, iterations: u32) -> Self {
        let salted = hash.salted_password(password, &salt, iterations);
        let keys = ScramKeys::of(hash, &salted);
        Self {
            hash,
            iterations,
            salt,
            stored_key: keys.stored,
            server_key: keys.server,
        }
    }

    /// Returns the credential that replaces that of a missing user: a salt and keys that depend only on the store's key
    /// and the name, so that repeated attempts reveal nothing. No password is known to fit, and the caller fails the
    /// login even if one does.
    pub(crate) fn fallback(
        hash: Hash,
        key: &[u8; FALLBACK_KEY_BYTES],
        user: &str,
        iterations: u32,
    ) -> Self {
        let derive = |label: &[u8], len: usize| {
            let len_byte = [u8::try_from(hash.len()).expect("a digest has at most 64 bytes")];
            let mut bytes = Hash::Sha512.hmac(key, &[label, &len_byte, user.as_bytes()]);
            bytes.truncate(len);
            bytes
        };
        Self {
            hash,
            iterations,
            salt: derive(b"salt", SALT_BYTES).to_vec(),
            stored_key: derive(b"stored", hash.len()),
            server_key: derive(b"server", hash.len()),
        }
    }

    /// Returns whether this is the password. Costs one PBKDF2.
    pub(crate) fn fits_password(&self, password: &[u8]) -> Choice {
        let salted = self
            .hash
            .salted_password(password, &self.salt, self.iterations);
        ScramKeys::of(self.hash, &salted)
            .stored
            .ct_eq(&self.stored_key)
    }

    /// Returns whether a client's proof is right: `H(proof XOR HMAC(StoredKey, AuthMessage)) == StoredKey`.
    pub(crate) fn fits_proof(&self, proof: &[u8], auth_message: &[u8]) -> Choice {
        if proof.len() != self.hash.len() {
            return Choice::from(0);
        }
        let mut client_key = self.hash.hmac(&self.stored_key, &[auth_message]);
        xor(&mut client_key, proof);
        self.hash.digest(&client_key).ct_eq(&self.stored_key)
    }

    /// Returns `HMAC(ServerKey, AuthMessage)`, the server's own proof.
    pub(crate) fn server_signature(&self, auth_message: &[u8]) -> Secret {
        self.hash.hmac(&self.server_key, &[auth_message])
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("hash", &self.hash)
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}

/// The keys that are derived from a salted password (RFC 5802 section 3).
pub(crate) struct ScramKeys {
    pub(crate) client: Secret,
    pub(crate) stored: Secret,
    pub(crate) server: Secret,
}

impl ScramKeys {
    pub(crate) fn of(hash: Hash, salted_password: &[u8]) -> Self {
        let client = hash.hmac(salted_password, &[b"Client Key"]);
        let stored = hash.digest(&client);
        let server = hash.hmac(salted_password, &[b"Server Key"]);
        Self {
            client,
            stored,
            server,
        }
    }
}

/// Computes `left ^= right`; the lengths are the same.
pub(crate) fn xor(left: &mut [u8], right: &[u8]) {
    assert_eq!(
        left.len(),
        right.len(),
        "only digests of one hash are combined"
    );
    for (l, r) in left.iter_mut().zip(right) {
        *l ^= r;
    }
}

/// One user's credentials, one per SCRAM mechanism. PLAIN is checked against that of SHA-512 while the user has no argon2id
/// hash.
#[derive(Debug, Clone)]
pub(crate) struct Credentials {
    pub(crate) sha512: Credential,
    pub(crate) sha256: Credential,
    pub(crate) sha1: Credential,
}

impl Credentials {
    /// Derives all credentials, each with a fresh salt. Costs three PBKDF2.
    pub(crate) fn derive(password: &[u8], iterations: u32) -> Result<Self, AuthError> {
        let derive = |hash| -> Result<Credential, AuthError> {
            let salt = random_bytes::<SALT_BYTES>()?.to_vec();
            Ok(Credential::derive(hash, password, salt, iterations))
        };
        Ok(Self {
            sha512: derive(Hash::Sha512)?,
            sha256: derive(Hash::Sha256)?,
            sha1: derive(Hash::Sha1)?,
        })
    }

    pub(crate) const fn for_hash(&self, hash: Hash) -> &Credential {
        match hash {
            Hash::Sha512 => &self.sha512,
            Hash::Sha256 => &self.sha256,
            Hash::Sha1 => &self.sha1,
        }
    }
}

/// The key from which fake salts are derived.
pub(crate) type FallbackKey = Zeroizing<[u8; FALLBACK_KEY_BYTES]>;
