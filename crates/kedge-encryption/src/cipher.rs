//! Encryption of a file that is written in parts, with a key of its own.

use std::fmt;

use aes_gcm::aead::AeadInOut;
use aes_gcm::{Aes256Gcm, KeyInit, Nonce, Tag};
use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::DataKey;
use crate::key::{KEY_BYTES, Secret};

/// Length of the tag after every ciphertext, in bytes.
pub(crate) const TAG_BYTES: usize = 16;
/// Length of a nonce, in bytes.
pub(crate) const NONCE_BYTES: usize = 12;

/// A part that was not encrypted with this key for this place, or is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it does not decrypt with its key: it is damaged, or the key is another")]
pub struct OpenFailed;

/// The cipher of one file. Its key is derived from a data key with NIST SP 800-108 in counter mode with HMAC-SHA-256, so that the
/// numbers of parts can be nonces.
pub struct PartCipher(Aes256Gcm);

impl PartCipher {
    /// Derives the cipher of a file. `label` names the kind of file, and no two files have the same random `context`.
    #[must_use]
    pub fn new(key: &DataKey, label: &str, context: &[u8; 32]) -> Self {
        Self(cipher(&derive(key.secret(), label, context)))
    }

    /// Encrypts a part in place and appends the tag. No two parts of a file have the same number. `plain` is authenticated with
    /// it.
    pub fn seal(&self, number: u64, plain: &[u8], part: &mut Vec<u8>) {
        let tag = self
            .0
            .encrypt_inout_detached(&nonce(number), plain, part.as_mut_slice().into())
            .expect("a part is shorter than AES-GCM's limit");
        part.extend_from_slice(&tag);
    }

    /// Decrypts a part in place and removes the tag.
    ///
    /// # Errors
    /// [`OpenFailed`]. The contents of the part are void then.
    pub fn open(&self, number: u64, plain: &[u8], part: &mut Vec<u8>) -> Result<(), OpenFailed> {
        open(&self.0, &nonce(number), plain, part)
    }
}

impl fmt::Debug for PartCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PartCipher")
    }
}

type GcmNonce = Nonce<<Aes256Gcm as aes_gcm::aead::AeadCore>::NonceSize>;

fn nonce(number: u64) -> GcmNonce {
    let mut nonce = [0; NONCE_BYTES];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    nonce.into()
}

pub(crate) fn cipher(secret: &Secret) -> Aes256Gcm {
    Aes256Gcm::new_from_slice(&**secret).expect("a key of 32 bytes")
}

pub(crate) fn open(
    cipher: &Aes256Gcm,
    nonce: &GcmNonce,
    plain: &[u8],
    part: &mut Vec<u8>,
) -> Result<(), OpenFailed> {
    let text_bytes = part.len().checked_sub(TAG_BYTES).ok_or(OpenFailed)?;
    let (text, tag) = part.split_at_mut(text_bytes);
    let tag = Tag::try_from(&*tag).map_err(|_| OpenFailed)?;
    let opened = cipher.decrypt_inout_detached(nonce, plain, text.into(), &tag);
    opened.map_err(|_| OpenFailed)?;
    part.truncate(text_bytes);
    Ok(())
}

/// Derives a key, one block of SP 800-108.
pub(crate) fn derive(secret: &Secret, label: &str, context: &[u8]) -> Secret {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&**secret)
        .expect("HMAC takes a key of any length");
    mac.update(&1_u32.to_be_bytes());
    mac.update(label.as_bytes());
    mac.update(&[0]);
    mac.update(context);
    mac.update(&(8 * KEY_BYTES as u32).to_be_bytes());
    Secret::new(mac.finalize().into_bytes().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> DataKey {
        DataKey::new("k".to_owned(), Secret::new([9; KEY_BYTES]), 0)
    }

    #[test]
    fn part_opens_with_its_number_key_and_plain_text_only() {
        let sealer = PartCipher::new(&key(), "log", &[1; 32]);
        let mut sealed = b"a part".to_vec();
        sealer.seal(7, b"head", &mut sealed);
        assert!(!sealed.windows(4).any(|it| it == b"part"));
        let other_label = PartCipher::new(&key(), "other", &[1; 32]);
        let other_file = PartCipher::new(&key(), "log", &[2; 32]);
        for (cipher, number, plain, opens) in [
            (&sealer, 7, &b"head"[..], true),
            (&sealer, 8, b"head", false),
            (&sealer, 7, b"heap", false),
            (&other_label, 7, b"head", false),
            (&other_file, 7, b"head", false),
        ] {
            let mut part = sealed.clone();
            let opened = cipher.open(number, plain, &mut part).is_ok();
            assert_eq!(opened, opens, "{number} {plain:?}");
            assert!(!opens || part == b"a part");
        }
        for bit in 0..sealed.len() * 8 {
            let mut part = sealed.clone();
            part[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(sealer.open(7, b"head", &mut part), Err(OpenFailed));
        }
        assert_eq!(sealer.open(7, b"head", &mut vec![0; 15]), Err(OpenFailed));
    }

    #[test]
    fn derivation_matches_an_independent_one() {
        // Computed with Python's `hmac` and `hashlib`.
        let derived = derive(
            &Secret::new(std::array::from_fn(|n| n as u8)),
            "FileKey",
            &[0x5a; 32],
        );
        let hex: String = derived.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, DERIVED);
    }

    const DERIVED: &str = "3038d1f5b076af982fb80f54fe0a5a1a9c18e04b3af4a0459c077e35d2111383";
}
