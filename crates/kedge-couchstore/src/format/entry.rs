//! The values of the leaves: the entries of a document in the two trees (couchstore file format, sections 2.2 and 2.3).

use super::bytes::{be48, lengths_at, pack_lengths, u32_at, u48_at};

/// Size of a by-id value before the private metadata, in bytes.
pub(crate) const ID_FIXED_BYTES: usize = 23;
/// Size of a by-seqno value before the key, in bytes.
pub(crate) const SEQNO_FIXED_BYTES: usize = 18;
/// Flag in the body pointer of a deleted document.
const DELETED: u64 = 1 << 47;

/// The fields of a document that both trees have, without key and private metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryFields {
    pub(crate) seqno: u64,
    pub(crate) rev: u64,
    /// Offset of the body; 0 for none.
    pub(crate) body: u64,
    /// Size of the body's chunk, in bytes on disk.
    pub(crate) body_bytes: u32,
    pub(crate) deleted: bool,
    pub(crate) content_meta: u8,
}

impl EntryFields {
    fn packed_body(&self) -> u64 {
        self.body | if self.deleted { DELETED } else { 0 }
    }

    /// Appends the fixed part of the by-id value.
    pub(crate) fn put_id(&self, out: &mut Vec<u8>) {
        let mut value = [0; ID_FIXED_BYTES];
        value[..6].copy_from_slice(&be48(self.seqno));
        value[6..10].copy_from_slice(&self.body_bytes.to_be_bytes());
        value[10..16].copy_from_slice(&be48(self.packed_body()));
        value[16..22].copy_from_slice(&be48(self.rev));
        value[22] = self.content_meta;
        out.extend_from_slice(&value);
    }

    /// Appends the fixed part of the by-seqno value.
    pub(crate) fn put_seqno(&self, key_bytes: usize, out: &mut Vec<u8>) {
        let mut value = [0; SEQNO_FIXED_BYTES];
        value[..5].copy_from_slice(&pack_lengths(key_bytes, self.body_bytes as usize));
        value[5..11].copy_from_slice(&be48(self.packed_body()));
        value[11..17].copy_from_slice(&be48(self.rev));
        value[17] = self.content_meta;
        out.extend_from_slice(&value);
    }

    /// Decodes the fixed part of a by-id value; the rest is the private metadata.
    pub(crate) fn take_id(value: &[u8]) -> Option<Self> {
        if value.len() < ID_FIXED_BYTES {
            return None;
        }
        let body = u48_at(value, 10);
        Some(EntryFields {
            seqno: u48_at(value, 0),
            rev: u48_at(value, 16),
            body: body & !DELETED,
            body_bytes: u32_at(value, 6),
            deleted: body & DELETED != 0,
            content_meta: value[22],
        })
    }

    /// Decodes the fixed part of a by-seqno value and the length of the key after it; the rest is the private metadata.
    pub(crate) fn take_seqno(seqno: u64, value: &[u8]) -> Option<(Self, usize)> {
        if value.len() < SEQNO_FIXED_BYTES {
            return None;
        }
        let (key_bytes, body_bytes) = lengths_at(value, 0);
        if SEQNO_FIXED_BYTES + key_bytes > value.len() {
            return None;
        }
        let body = u48_at(value, 5);
        let fields = EntryFields {
            seqno,
            rev: u48_at(value, 11),
            body: body & !DELETED,
            body_bytes: body_bytes as u32,
            deleted: body & DELETED != 0,
            content_meta: value[17],
        };
        Some((fields, key_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: EntryFields = EntryFields {
        seqno: 1,
        rev: 1,
        body: 0x30,
        body_bytes: 64,
        deleted: false,
        content_meta: 0x80,
    };

    #[test]
    fn entry_values_match_the_worked_example() {
        let mut value = Vec::new();
        FIELDS.put_id(&mut value);
        let expected = b"\0\0\0\0\0\x01\0\0\0\x40\0\0\0\0\0\x30\0\0\0\0\0\x01\x80";
        assert_eq!(value, expected);
        let mut value = Vec::new();
        FIELDS.put_seqno(11, &mut value);
        assert_eq!(value, b"\0\xb0\0\0\x40\0\0\0\0\0\x30\0\0\0\0\0\x01\x80");
    }

    #[test]
    fn entry_values_round_trip_and_short_ones_are_rejected() {
        let tombstone = EntryFields {
            seqno: (1 << 48) - 1,
            rev: 0x1234_5678_9abc,
            body: (1 << 47) - 2,
            body_bytes: (1 << 28) - 1,
            deleted: true,
            content_meta: 3,
        };
        for fields in [FIELDS, tombstone] {
            let mut value = Vec::new();
            fields.put_id(&mut value);
            assert_eq!(EntryFields::take_id(&value), Some(fields));
            assert_eq!(EntryFields::take_id(&value[1..]), None);
            let mut value = Vec::new();
            fields.put_seqno(3, &mut value);
            value.extend_from_slice(b"key and meta");
            assert_eq!(
                EntryFields::take_seqno(fields.seqno, &value),
                Some((fields, 3))
            );
            for len in 0..21 {
                assert_eq!(EntryFields::take_seqno(fields.seqno, &value[..len]), None);
            }
        }
    }
}
