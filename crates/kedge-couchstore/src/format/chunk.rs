//! Data chunks: a length, a checksum or a tag, and the body (couchstore file format, sections 1.2 and 1.3).

use std::sync::Arc;

use super::bytes::u32_at;
use super::checksum::{crc32, crc32c};
use crate::DamageKind;
use crate::crypto::{FileKey, TAG_BYTES};

/// Flag in the length of a data chunk with a checksum.
const DATA_FLAG: u32 = 0x8000_0000;

/// The protection of a file's chunks.
#[derive(Debug, Clone)]
pub(crate) enum Codec {
    /// CRC-32, for files of version 11.
    Crc32,
    /// CRC-32C.
    Crc32c,
    /// AES-256-GCM.
    Sealed(Arc<FileKey>),
}

impl Codec {
    /// Returns the size of a chunk's head, in bytes.
    pub(crate) fn head_bytes(&self) -> usize {
        match self {
            Codec::Crc32 | Codec::Crc32c => 8,
            Codec::Sealed(_) => 4,
        }
    }

    /// Returns the size of a body on disk as in all size fields: without the type bytes of blocks.
    pub(crate) fn disk_bytes(&self, body: usize) -> usize {
        match self {
            Codec::Crc32 | Codec::Crc32c => 8 + body,
            Codec::Sealed(_) => 4 + body + TAG_BYTES,
        }
    }

    /// Returns the head of the chunk with this body. `scratch` receives the stored body if it differs from the body
    /// itself.
    pub(crate) fn encode<'a>(
        &self,
        at: u64,
        body: &'a [u8],
        scratch: &'a mut Vec<u8>,
    ) -> (ChunkHead, &'a [u8]) {
        let crc = match self {
            Codec::Crc32 => crc32(body),
            Codec::Crc32c => crc32c(body),
            Codec::Sealed(key) => {
                scratch.clear();
                scratch.extend_from_slice(body);
                key.seal(at, scratch);
                return (ChunkHead::new(scratch.len() as u32, None), scratch);
            }
        };
        (
            ChunkHead::new(body.len() as u32 | DATA_FLAG, Some(crc)),
            body,
        )
    }

    /// Returns the length of a chunk's stored body, from its head.
    pub(crate) fn body_bytes(&self, head: &[u8]) -> Result<u32, DamageKind> {
        let length = u32_at(head, 0);
        let has_flag = length & DATA_FLAG != 0;
        match (self, has_flag) {
            (Codec::Crc32 | Codec::Crc32c, true) => Ok(length & !DATA_FLAG),
            (Codec::Sealed(_), false) => Ok(length),
            _ => Err(DamageKind::ChunkFlag),
        }
    }

    /// Returns `true` if [`Codec::open`] changes the chunk in place.
    pub(crate) fn is_sealed(&self) -> bool {
        matches!(self, Codec::Sealed(_))
    }

    /// Validates the body of an unencrypted chunk.
    pub(crate) fn check<'a>(&self, chunk: &'a [u8]) -> Result<&'a [u8], DamageKind> {
        let (head, body) = chunk.split_at(self.head_bytes());
        let crc = match self {
            Codec::Crc32 => crc32(body),
            Codec::Crc32c => crc32c(body),
            Codec::Sealed(_) => return Err(DamageKind::ChunkSeal),
        };
        if crc == u32_at(head, 4) {
            Ok(body)
        } else {
            Err(DamageKind::ChunkChecksum)
        }
    }

    /// Returns the body of a whole chunk: validated, and decrypted in place if it is encrypted.
    pub(crate) fn open<'a>(&self, at: u64, chunk: &'a mut [u8]) -> Result<&'a [u8], DamageKind> {
        match self {
            Codec::Sealed(key) => Ok(key.open(at, &mut chunk[4..])?),
            _ => self.check(chunk),
        }
    }
}

/// The head of a chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkHead {
    bytes: [u8; 8],
    len: usize,
}

impl ChunkHead {
    fn new(length: u32, crc: Option<u32>) -> Self {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        bytes[4..].copy_from_slice(&crc.unwrap_or(0).to_be_bytes());
        ChunkHead {
            bytes,
            len: if crc.is_some() { 8 } else { 4 },
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EncryptionKey;

    fn codecs() -> [Codec; 3] {
        let key = EncryptionKey::new("k", [1; 32]).file_key(1, &[2; 32]);
        let key = Arc::new(key.expect("a key"));
        [Codec::Crc32, Codec::Crc32c, Codec::Sealed(key)]
    }

    #[test]
    fn chunks_round_trip_and_damage_is_detected() {
        for codec in codecs() {
            for body in [&b""[..], b"x", &[9; 5000]] {
                let mut scratch = Vec::new();
                let (head, stored) = codec.encode(100, body, &mut scratch);
                let chunk = [head.as_bytes(), stored].concat();
                assert_eq!(chunk.len(), codec.disk_bytes(body.len()));
                assert_eq!(
                    codec.body_bytes(&chunk),
                    Ok((chunk.len() - codec.head_bytes()) as u32)
                );
                assert_eq!(codec.open(100, &mut chunk.clone()), Ok(body));
                for at in codec.head_bytes()..chunk.len().min(40) {
                    let mut damaged = chunk.clone();
                    damaged[at] ^= 0x20;
                    assert!(
                        codec.open(100, &mut damaged).is_err(),
                        "{codec:?} byte {at}"
                    );
                }
                let mut other = chunk.clone();
                other[0] ^= 0x80;
                assert_eq!(codec.body_bytes(&other), Err(DamageKind::ChunkFlag));
            }
        }
    }

    #[test]
    fn empty_chunk_has_the_documented_encoding() {
        let (head, stored) = Codec::Crc32c.encode(1, b"", &mut Vec::new()).into_owned();
        assert_eq!((head, stored), (vec![0x80, 0, 0, 0, 0, 0, 0, 0], vec![]));
        // The published checksums of "123456789" with both polynomials.
        for (codec, crc) in [
            (Codec::Crc32, 0xcbf4_3926_u32),
            (Codec::Crc32c, 0xe306_9283),
        ] {
            let (head, _) = codec.encode(1, b"123456789", &mut Vec::new()).into_owned();
            assert_eq!(head[4..], crc.to_be_bytes());
        }
    }

    trait IntoOwned {
        fn into_owned(self) -> (Vec<u8>, Vec<u8>);
    }

    impl IntoOwned for (ChunkHead, &[u8]) {
        fn into_owned(self) -> (Vec<u8>, Vec<u8>) {
            (self.0.as_bytes().to_vec(), self.1.to_vec())
        }
    }
}
