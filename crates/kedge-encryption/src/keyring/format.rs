//! The format of the file, see `docs/reference/formats/keyring.md`.

use std::sync::Arc;

use aes_gcm::Nonce;
use aes_gcm::aead::AeadInOut;
use zeroize::Zeroizing;

use super::error::{KeyringDamage, Unreadable};
use super::set::{KeyEntry, KeySet};
use crate::cipher::{NONCE_BYTES, cipher, open};
use crate::key::{DataKey, KEY_BYTES, Secret};

const MAGIC: &[u8; 8] = b"KedgeKey";
pub(super) const VERSION: u32 = 1;
/// Flags of a key.
const ACTIVE: u8 = 1;
const RETIRED: u8 = 2;

/// The parts of a file, of which the keys are still encrypted.
#[derive(Debug)]
pub(super) struct Envelope {
    /// The name of the master key.
    pub(super) master: String,
    /// The keyring key, encrypted with the master key.
    pub(super) wrapped: Vec<u8>,
    /// The bytes before the nonce, which are authenticated with the keys.
    head: Vec<u8>,
    nonce: [u8; NONCE_BYTES],
    sealed: Vec<u8>,
}

impl Envelope {
    /// Returns the bytes of a file.
    pub(super) fn encode(master: &str, wrapped: &[u8], secret: &Secret, keys: &KeySet) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        put_field(master.as_bytes(), &mut out);
        put_field(wrapped, &mut out);
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).expect("the system has random numbers");
        let mut sealed = encode_keys(keys);
        let tag = cipher(secret)
            .encrypt_inout_detached(&Nonce::from(nonce), &out, sealed.as_mut_slice().into())
            .expect("a keyring is shorter than AES-GCM's limit");
        let sealed = [&**sealed, &*tag].concat();
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&(sealed.len() as u32).to_le_bytes());
        out.extend_from_slice(&sealed);
        let sum = crc32c::crc32c(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads the bytes of a file.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(KeyringDamage::Magic)?;
        let (content, sum) = bytes.split_last_chunk::<4>().ok_or(KeyringDamage::Length)?;
        if crc32c::crc32c(content) != u32::from_le_bytes(*sum) {
            return Err(KeyringDamage::Checksum.into());
        }
        let mut rest = Fields(&rest[..rest.len() - sum.len()]);
        let version = u32::from_le_bytes(*rest.chunk()?);
        if version > VERSION {
            return Err(Unreadable::Newer(version));
        }
        let master =
            String::from_utf8(rest.field()?.to_vec()).map_err(|_| KeyringDamage::Length)?;
        let wrapped = rest.field()?.to_vec();
        let head = content[..content.len() - rest.0.len()].to_vec();
        let nonce = *rest.chunk()?;
        let sealed_bytes = u32::from_le_bytes(*rest.chunk()?) as usize;
        if rest.0.len() != sealed_bytes {
            return Err(KeyringDamage::Length.into());
        }
        Ok(Self {
            master,
            wrapped,
            head,
            nonce,
            sealed: rest.0.to_vec(),
        })
    }

    /// Decrypts the keys.
    pub(super) fn open(&self, secret: &Secret) -> Result<KeySet, KeyringDamage> {
        let mut keys = Zeroizing::new(self.sealed.clone());
        open(
            &cipher(secret),
            &Nonce::from(self.nonce),
            &self.head,
            &mut keys,
        )
        .map_err(|_| KeyringDamage::Sealed)?;
        decode_keys(&keys)
    }
}

fn encode_keys(keys: &KeySet) -> Zeroizing<Vec<u8>> {
    let bytes = |entry: &KeyEntry| 1 + entry.key.id().len() + 8 + 1 + KEY_BYTES;
    let total = 4 + keys.entries.iter().map(bytes).sum::<usize>();
    // With its capacity from the start, it leaves no copies.
    let mut out = Zeroizing::new(Vec::with_capacity(total));
    out.extend_from_slice(&(keys.entries.len() as u32).to_le_bytes());
    for (index, KeyEntry { key, is_retired }) in keys.entries.iter().enumerate() {
        let is_active = keys.has_active && index + 1 == keys.entries.len();
        out.push(u8::try_from(key.id().len()).expect("an id has 36 bytes"));
        out.extend_from_slice(key.id().as_bytes());
        out.extend_from_slice(&key.created_unix_secs().to_le_bytes());
        let active = u8::from(is_active) * ACTIVE;
        out.push(active | (u8::from(*is_retired) * RETIRED));
        out.extend_from_slice(&**key.secret());
    }
    out
}

fn decode_keys(bytes: &[u8]) -> Result<KeySet, KeyringDamage> {
    let malformed = |_| KeyringDamage::Keys;
    let mut rest = Fields(bytes);
    let count = u32::from_le_bytes(*rest.chunk().map_err(malformed)?);
    let mut keys = KeySet::default();
    for _ in 0..count {
        let id_bytes = usize::from(rest.chunk::<1>().map_err(malformed)?[0]);
        let id = rest.take(id_bytes).map_err(malformed)?.to_vec();
        let id = String::from_utf8(id).map_err(|_| KeyringDamage::Keys)?;
        let created = u64::from_le_bytes(*rest.chunk().map_err(malformed)?);
        let [flags] = *rest.chunk().map_err(malformed)?;
        let secret = Secret::new(*rest.chunk().map_err(malformed)?);
        // Only the last one is active.
        if keys.has_active || flags & !(ACTIVE | RETIRED) != 0 {
            return Err(KeyringDamage::Keys);
        }
        keys.has_active = flags & ACTIVE != 0;
        keys.entries.push(KeyEntry {
            key: Arc::new(DataKey::new(id, secret, created)),
            is_retired: flags & RETIRED != 0,
        });
    }
    match rest.0.is_empty() {
        true => Ok(keys),
        false => Err(KeyringDamage::Keys),
    }
}

fn put_field(field: &[u8], out: &mut Vec<u8>) {
    let bytes = u16::try_from(field.len()).expect("a name or a wrapped key is short");
    out.extend_from_slice(&bytes.to_le_bytes());
    out.extend_from_slice(field);
}

/// The bytes that were not read yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], KeyringDamage> {
        let (taken, rest) = self
            .0
            .split_at_checked(bytes)
            .ok_or(KeyringDamage::Length)?;
        self.0 = rest;
        Ok(taken)
    }

    fn chunk<const N: usize>(&mut self) -> Result<&'a [u8; N], KeyringDamage> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(KeyringDamage::Length)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Reads a field with its length in two bytes.
    fn field(&mut self) -> Result<&'a [u8], KeyringDamage> {
        let bytes = u16::from_le_bytes(*self.chunk()?);
        self.take(bytes.into())
    }
}
