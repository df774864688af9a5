//! Encryption of chunks, and the key of a file, which is derived from the owner's key (couchstore file format, sections
//! 1.3 and 1.7).

use std::fmt;

use aes_gcm::aead::AeadInOut;
use aes_gcm::{Aes256Gcm, KeyInit, Nonce, Tag};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::DamageKind;
use crate::limits::BLOCK_BYTES;

/// Length of AES-256 keys, in bytes.
pub(crate) const KEY_BYTES: usize = 32;
/// Length of the tag after every ciphertext, in bytes.
pub(crate) const TAG_BYTES: usize = 16;
const NONCE_BYTES: usize = 12;

/// A named key from which the separate key of each encrypted file is derived.
#[derive(Clone)]
pub struct EncryptionKey {
    id: String,
    secret: Zeroizing<[u8; KEY_BYTES]>,
}

impl EncryptionKey {
    /// Creates an AES-256 key with the name, of at most 255 bytes, that files refer to.
    ///
    /// # Panics
    /// Panics if the name is longer.
    #[must_use]
    pub fn new(id: impl Into<String>, secret: [u8; KEY_BYTES]) -> Self {
        let id = id.into();
        assert!(
            u8::try_from(id.len()).is_ok(),
            "a key's name has at most 255 bytes"
        );
        EncryptionKey {
            id,
            secret: Zeroizing::new(secret),
        }
    }

    /// Returns the name.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the key of a file whose metadata header has this version and context.
    pub(crate) fn file_key(&self, version: u8, context: &[u8]) -> Result<FileKey, DamageKind> {
        let derived = match version {
            0 => self.unwrap_key(context)?,
            1 => self.derive_key(context),
            _ => return Err(DamageKind::MetadataHeader),
        };
        Ok(FileKey::new(&derived))
    }

    /// Derives a key with NIST SP 800-108 in counter mode with HMAC-SHA-256, one block of it.
    fn derive_key(&self, context: &[u8]) -> Zeroizing<[u8; KEY_BYTES]> {
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&*self.secret)
            .expect("HMAC takes a key of any length");
        mac.update(&1_u32.to_be_bytes());
        mac.update(b"FileKey\0couchstore/");
        mac.update(context);
        mac.update(&(8 * KEY_BYTES as u32).to_be_bytes());
        Zeroizing::new(mac.finalize().into_bytes().into())
    }

    /// Decrypts the key that an older library stored encrypted with this one.
    fn unwrap_key(&self, context: &[u8]) -> Result<Zeroizing<[u8; KEY_BYTES]>, DamageKind> {
        let (nonce, rest) = context
            .split_first_chunk::<NONCE_BYTES>()
            .ok_or(DamageKind::MetadataHeader)?;
        let (sealed, tag) = rest
            .split_first_chunk::<KEY_BYTES>()
            .ok_or(DamageKind::MetadataHeader)?;
        let tag = Tag::try_from(tag).map_err(|_| DamageKind::MetadataHeader)?;
        let mut key = Zeroizing::new(*sealed);
        cipher(&self.secret)
            .decrypt_inout_detached(
                &Nonce::from(*nonce),
                self.id.as_bytes(),
                key.as_mut_slice().into(),
                &tag,
            )
            .map_err(|_| DamageKind::MetadataKey)?;
        Ok(key)
    }
}

impl fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncryptionKey({:?})", self.id)
    }
}

fn cipher(key: &[u8; KEY_BYTES]) -> Aes256Gcm {
    Aes256Gcm::new_from_slice(key).expect("a key of 32 bytes")
}

/// The key of one file. The nonce of a chunk is its position, so no two chunks of a file share one.
pub(crate) struct FileKey(Aes256Gcm);

impl FileKey {
    fn new(key: &[u8; KEY_BYTES]) -> Self {
        FileKey(cipher(key))
    }

    /// Encrypts the body of the chunk at `at` in place and appends the tag.
    pub(crate) fn seal(&self, at: u64, body: &mut Vec<u8>) {
        let tag = self
            .0
            .encrypt_inout_detached(&nonce(at), b"", body.as_mut_slice().into())
            .expect("a chunk is shorter than AES-GCM's limit");
        body.extend_from_slice(&tag);
    }

    /// Decrypts the body of the chunk at `at` in place and returns the plain text.
    pub(crate) fn open<'a>(&self, at: u64, body: &'a mut [u8]) -> Result<&'a mut [u8], DamageKind> {
        let split = body
            .len()
            .checked_sub(TAG_BYTES)
            .ok_or(DamageKind::ChunkSeal)?;
        let (text, tag) = body.split_at_mut(split);
        let tag = Tag::try_from(&*tag).map_err(|_| DamageKind::ChunkSeal)?;
        self.0
            .decrypt_inout_detached(&nonce(at), b"", (&mut *text).into(), &tag)
            .map_err(|_| DamageKind::ChunkSeal)?;
        Ok(text)
    }
}

impl fmt::Debug for FileKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileKey")
    }
}

/// Returns the position as a number of 12 bytes. At a block boundary a chunk has two addresses, before and after the
/// type byte, which have to give the same nonce.
fn nonce(at: u64) -> Nonce<<Aes256Gcm as aes_gcm::aead::AeadCore>::NonceSize> {
    let at = at + u64::from(at.is_multiple_of(BLOCK_BYTES));
    let mut nonce = [0; NONCE_BYTES];
    nonce[4..].copy_from_slice(&at.to_be_bytes());
    nonce.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> EncryptionKey {
        EncryptionKey::new("k", std::array::from_fn(|n| n as u8))
    }

    #[test]
    fn sealed_chunk_opens_at_its_offset_only() {
        let file_key = key().file_key(1, &[7; 32]).expect("a key");
        let mut sealed = b"some node".to_vec();
        file_key.seal(8192, &mut sealed);
        assert_eq!(sealed.len(), 9 + TAG_BYTES);
        for (at, opens) in [(8192, true), (8193, true), (8194, false), (0, false)] {
            let result = file_key
                .open(at, &mut sealed.clone())
                .map(|text| text.to_vec());
            assert_eq!(result.ok(), opens.then(|| b"some node".to_vec()), "{at}");
        }
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 4;
            assert_eq!(
                file_key.open(8192, &mut damaged),
                Err(DamageKind::ChunkSeal)
            );
        }
        assert_eq!(
            file_key.open(8192, &mut sealed[..3]),
            Err(DamageKind::ChunkSeal)
        );
    }

    #[test]
    fn file_key_matches_an_independent_derivation() {
        // Computed with another implementation of SP 800-108 and AES-GCM (Python's `cryptography`).
        assert_eq!(*key().derive_key(&[0x5a; 32]), DERIVED);
        assert_eq!(key().unwrap_key(&WRAPPED).as_deref(), Ok(&[0x33; 32]));
        let mut wrong = WRAPPED;
        wrong[20] ^= 1;
        assert_eq!(key().unwrap_key(&wrong), Err(DamageKind::MetadataKey));
        assert_eq!(
            key().unwrap_key(&wrong[..59]),
            Err(DamageKind::MetadataHeader)
        );
        assert!(matches!(
            key().file_key(2, &[0; 32]),
            Err(DamageKind::MetadataHeader)
        ));
    }

    const DERIVED: [u8; 32] = [
        0x8a, 0x75, 0x84, 0x28, 0x4d, 0x83, 0xe4, 0x2f, 0xba, 0x98, 0xf3, 0xa9, 0x0f, 0x65, 0x19,
        0x66, 0x9f, 0xb7, 0x11, 0xfa, 0x99, 0xcc, 0xcc, 0x5b, 0x43, 0x21, 0x98, 0xbb, 0xee, 0x73,
        0x7e, 0xe8,
    ];
    const WRAPPED: [u8; 60] = [
        0x09, 0x09, 0x09, 0x09, 0x09, 0x09, 0x09, 0x09, 0x09, 0x09, 0x09, 0x09, 0x80, 0x2b, 0x3b,
        0x08, 0xb4, 0xac, 0x70, 0x97, 0xe2, 0x3a, 0x03, 0xca, 0x98, 0xa5, 0x88, 0xfc, 0x0a, 0x21,
        0xec, 0x1d, 0x69, 0x35, 0x73, 0x86, 0x20, 0xc4, 0x51, 0x58, 0xa0, 0x04, 0xb8, 0x74, 0x21,
        0xc5, 0xcf, 0xf8, 0xe4, 0x8c, 0x17, 0xf7, 0x9c, 0x5a, 0xdc, 0x27, 0xb5, 0x77, 0x8e, 0xef,
    ];
}
