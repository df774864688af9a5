//! The three hash functions behind one type: hash, HMAC and PBKDF2.

use hmac::{EagerHash, Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};
use zeroize::Zeroizing;

/// Bytes that are overwritten when dropped.
pub(crate) type Secret = Zeroizing<Vec<u8>>;

/// A hash function for SCRAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha512,
    Sha256,
    Sha1,
}

impl Hash {
    /// Returns the length of a digest in bytes.
    pub(crate) const fn len(self) -> usize {
        match self {
            Self::Sha512 => 64,
            Self::Sha256 => 32,
            Self::Sha1 => 20,
        }
    }

    /// Computes `H(data)`.
    pub(crate) fn digest(self, data: &[u8]) -> Secret {
        match self {
            Self::Sha512 => digest::<Sha512>(data),
            Self::Sha256 => digest::<Sha256>(data),
            Self::Sha1 => digest::<Sha1>(data),
        }
    }

    /// Computes `HMAC(key, parts[0] + parts[1] + ...)` (RFC 2104).
    pub(crate) fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Secret {
        match self {
            Self::Sha512 => hmac::<Sha512>(key, parts),
            Self::Sha256 => hmac::<Sha256>(key, parts),
            Self::Sha1 => hmac::<Sha1>(key, parts),
        }
    }

    /// Computes `Hi(password, salt, iterations)` of RFC 5802 section 2.2, which is PBKDF2 with one block.
    pub(crate) fn salted_password(self, password: &[u8], salt: &[u8], iterations: u32) -> Secret {
        let mut out = Zeroizing::new(vec![0; self.len()]);
        match self {
            Self::Sha512 => pbkdf2::pbkdf2_hmac::<Sha512>(password, salt, iterations, &mut out),
            Self::Sha256 => pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, iterations, &mut out),
            Self::Sha1 => pbkdf2::pbkdf2_hmac::<Sha1>(password, salt, iterations, &mut out),
        }
        out
    }
}

fn digest<D: Digest>(data: &[u8]) -> Secret {
    Zeroizing::new(D::digest(data).to_vec())
}

fn hmac<D: EagerHash>(key: &[u8], parts: &[&[u8]]) -> Secret {
    let mut mac =
        <Hmac<D> as KeyInit>::new_from_slice(key).expect("HMAC takes a key of any length");
    for part in parts {
        mac.update(part);
    }
    Zeroizing::new(mac.finalize().into_bytes().to_vec())
}
