//! The encryption of an access log.
//!
//! ```text
//! header   version 2
//! head     name of the data key, random context, checksum
//! blocks   with encrypted keys
//! ```

use super::format::AccessLogError;
use kedge_encryption::{DataKey, KeySet, PartCipher};
use std::sync::Arc;

/// The kind of file in the derivation of its key.
const LABEL: &str = "kedge access log";
const CONTEXT_BYTES: usize = 32;
const SUM_BYTES: usize = 4;
/// Size of the largest head: a name of 255 bytes.
pub(super) const HEAD_BYTES_MAX: usize = 1 + 255 + CONTEXT_BYTES + SUM_BYTES;

/// The cipher of a log, and its key.
#[derive(Debug)]
pub(super) struct LogSeal {
    cipher: PartCipher,
    /// Held while the log is written.
    key: Arc<DataKey>,
}

impl LogSeal {
    /// Begins an encrypted log: appends its head.
    pub(super) fn begin(key: &Arc<DataKey>, out: &mut Vec<u8>) -> Self {
        let mut context = [0; CONTEXT_BYTES];
        getrandom::fill(&mut context).expect("the system has random numbers");
        let begin = out.len();
        out.push(u8::try_from(key.id().len()).expect("an id has 36 bytes"));
        out.extend_from_slice(key.id().as_bytes());
        out.extend_from_slice(&context);
        let sum = crc32c::crc32c(&out[begin..]);
        out.extend_from_slice(&sum.to_le_bytes());
        Self::new(key, &context)
    }

    /// Reads the head at the start of `bytes`. Returns its length, too.
    pub(super) fn read(
        bytes: &[u8],
        keys: Option<&KeySet>,
    ) -> Result<(Self, usize), AccessLogError> {
        let (id, context, head_bytes) = head(bytes).ok_or(AccessLogError::Damaged)?;
        let key = std::str::from_utf8(id).ok().and_then(|id| keys?.find(id));
        let key = key.ok_or(AccessLogError::KeyMissing)?;
        Ok((Self::new(key, context), head_bytes))
    }

    fn new(key: &Arc<DataKey>, context: &[u8; CONTEXT_BYTES]) -> Self {
        Self {
            cipher: PartCipher::new(key, LABEL, context),
            key: Arc::clone(key),
        }
    }

    /// Returns the name of the key.
    pub(super) fn key_id(&self) -> &str {
        self.key.id()
    }

    /// Encrypts the keys of the block at this offset of the file.
    pub(super) fn seal(&self, at: u64, block_head: &[u8], keys: &mut Vec<u8>) {
        self.cipher.seal(at, block_head, keys);
    }

    /// Decrypts the keys of the block at this offset of the file.
    pub(super) fn open(
        &self,
        at: u64,
        block_head: &[u8],
        keys: &mut Vec<u8>,
    ) -> Result<(), AccessLogError> {
        let opened = self.cipher.open(at, block_head, keys);
        opened.map_err(|_| AccessLogError::Damaged)
    }
}

/// Returns the name of the key of a log that begins with such a head.
pub(super) fn key_of_head(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(head(bytes)?.0).ok()
}

/// Returns name, context and length of a head.
fn head(bytes: &[u8]) -> Option<(&[u8], &[u8; CONTEXT_BYTES], usize)> {
    let (id_bytes, rest) = bytes.split_first()?;
    let (id, rest) = rest.split_at_checked(usize::from(*id_bytes))?;
    let (context, rest) = rest.split_first_chunk::<CONTEXT_BYTES>()?;
    let sum = rest.first_chunk::<SUM_BYTES>()?;
    let without_sum = 1 + id.len() + CONTEXT_BYTES;
    let is_sound = crc32c::crc32c(&bytes[..without_sum]) == u32::from_le_bytes(*sum);
    is_sound.then_some((id, context, without_sum + SUM_BYTES))
}
