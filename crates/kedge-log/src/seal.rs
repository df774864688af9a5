//! Encryption of batches: the keys that are derived for a segment, and the sealing and opening of a batch with
//! AES-256-GCM.
//!
//! Invariant: no two batches are sealed with the same key and nonce. Each [`BatchSealer`] draws a random salt, from
//! which its key is derived, and counts its batches; the count is the nonce. Neither is ever taken from a file, so
//! positions that are written again after a failure, a crash or a recovery do no harm.

use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::format::{BatchHeader, BatchSeal, PROOF_BYTES, SegmentHeader};
use crate::keys::{KEY_BYTES, SegmentKey};

/// Length of the random number in the header of an encrypted segment, in bytes.
pub(crate) const SEGMENT_SALT_BYTES: usize = 32;
/// Length of the random number of a sealer, in bytes.
pub(crate) const SEALER_SALT_BYTES: usize = 16;

/// The secret of one encrypted segment, derived from a key and the salt in the segment's header.
pub(crate) struct SegmentSecret {
    key_id: String,
    salt: [u8; SEGMENT_SALT_BYTES],
    secret: Zeroizing<[u8; KEY_BYTES]>,
}

impl SegmentSecret {
    /// Creates the secret of a new segment.
    pub(crate) fn random(key: &SegmentKey) -> Self {
        Self::derive(key, random())
    }

    /// Derives the secret of a segment with the salt.
    pub(crate) fn derive(key: &SegmentKey, salt: [u8; SEGMENT_SALT_BYTES]) -> Self {
        Self {
            key_id: key.id().to_owned(),
            salt,
            secret: derive(key.secret(), b"SegmentKey", &salt),
        }
    }

    /// Returns the id of the key.
    pub(crate) fn key_id(&self) -> &str {
        &self.key_id
    }

    pub(crate) fn salt(&self) -> [u8; SEGMENT_SALT_BYTES] {
        self.salt
    }

    /// Returns the proof that a header was written by an owner of the key.
    pub(crate) fn proof(&self, header: &SegmentHeader) -> [u8; PROOF_BYTES] {
        self.header_mac(header).finalize().into_bytes().into()
    }

    /// Returns `true` if the proof in the header fits its fields and this secret.
    pub(crate) fn is_proof(&self, header: &SegmentHeader, proof: &[u8; PROOF_BYTES]) -> bool {
        self.header_mac(header).verify_slice(proof).is_ok()
    }

    fn header_mac(&self, header: &SegmentHeader) -> Hmac<Sha256> {
        let mut mac = mac(&derive(&self.secret, b"HeaderKey", b""));
        header.proven(|bytes| mac.update(bytes));
        mac
    }

    fn batch_key(&self, salt: &[u8; SEALER_SALT_BYTES]) -> LessSafeKey {
        let key = derive(&self.secret, b"BatchKey", salt);
        LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &*key).expect("a key of 32 bytes"))
    }
}

impl fmt::Debug for SegmentSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SegmentSecret({:?})", self.key_id)
    }
}

/// Derives a key with NIST SP 800-108 in counter mode with HMAC-SHA-256, one block of it.
fn derive(secret: &[u8; KEY_BYTES], label: &[u8], context: &[u8]) -> Zeroizing<[u8; KEY_BYTES]> {
    let mut mac = mac(secret);
    mac.update(&1_u32.to_be_bytes());
    mac.update(label);
    mac.update(b"\0kedge-log/");
    mac.update(context);
    mac.update(&(8 * KEY_BYTES as u32).to_be_bytes());
    Zeroizing::new(mac.finalize().into_bytes().into())
}

fn mac(secret: &[u8; KEY_BYTES]) -> Hmac<Sha256> {
    Hmac::new_from_slice(secret).expect("HMAC takes a key of any length")
}

fn random<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes
}

/// Returns the nonce of the `count`-th batch of a sealer.
fn nonce(count: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[4..].copy_from_slice(&count.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// Decrypts the body of a batch in place. Returns `false` if the header or the body is not as it was sealed; the body
/// is void then.
fn open(key: &LessSafeKey, header: &BatchHeader, seal: &BatchSeal, body: &mut [u8]) -> bool {
    let (tag, bound) = (Tag::from(seal.tag), Aad::from(header.bound(seal)));
    key.open_in_place_separate_tag(nonce(seal.count), bound, tag, body, 0..)
        .is_ok()
}

/// Encrypts the batches that one open of the log writes into one segment.
pub(crate) struct BatchSealer {
    key: LessSafeKey,
    salt: [u8; SEALER_SALT_BYTES],
    /// Number of sealed batches, whether or not they were written.
    count: u64,
}

impl BatchSealer {
    /// Creates a sealer with a key of its own.
    pub(crate) fn new(secret: &SegmentSecret) -> Self {
        Self::with_salt(secret, random())
    }

    pub(crate) fn with_salt(secret: &SegmentSecret, salt: [u8; SEALER_SALT_BYTES]) -> Self {
        let key = secret.batch_key(&salt);
        Self {
            key,
            salt,
            count: 0,
        }
    }

    /// Encrypts the body of a batch in place, and completes its header.
    pub(crate) fn seal(&mut self, header: &mut BatchHeader, body: &mut [u8]) {
        self.count += 1;
        let mut seal = BatchSeal {
            salt: self.salt,
            count: self.count,
            tag: [0; _],
        };
        let bound = Aad::from(header.bound(&seal));
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce(seal.count), bound, body)
            .expect("a batch is shorter than AES-GCM's limit");
        seal.tag.copy_from_slice(tag.as_ref());
        header.seal = Some(seal);
    }

    /// Restores the body of a batch that this sealer has sealed and that was not written.
    ///
    /// # Panics
    /// Panics if the batch has changed since.
    pub(crate) fn undo(&self, header: &BatchHeader, body: &mut [u8]) {
        let seal = header.seal.as_ref().expect("a sealed batch");
        assert!(open(&self.key, header, seal, body), "an unchanged batch");
    }
}

/// Decrypts the batches of one segment.
pub(crate) struct BatchOpener {
    secret: Arc<SegmentSecret>,
    /// The key of the sealer whose batch was opened last.
    last: Option<([u8; SEALER_SALT_BYTES], LessSafeKey)>,
}

impl BatchOpener {
    pub(crate) fn new(secret: Arc<SegmentSecret>) -> Self {
        Self { secret, last: None }
    }

    /// Decrypts the body of a batch in place. Returns `false` if the header or the body is not as it was sealed; the
    /// body is void then.
    pub(crate) fn open(&mut self, header: &BatchHeader, body: &mut [u8]) -> bool {
        let Some(seal) = &header.seal else {
            return false;
        };
        let (_, key) = match self.last.take().filter(|(salt, _)| *salt == seal.salt) {
            Some(last) => self.last.insert(last),
            None => self
                .last
                .insert((seal.salt, self.secret.batch_key(&seal.salt))),
        };
        open(key, header, seal, body)
    }
}
