//! The metadata header of an encrypted file: the name of the key, and the context for deriving the file's own key
//! (couchstore file format, section 1.7).

use crate::DamageKind;

/// Version of new metadata headers.
pub(crate) const VERSION: u8 = 1;
/// Size of the random context in new metadata headers, in bytes.
pub(crate) const CONTEXT_BYTES: usize = 32;

/// The body of a metadata header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EncryptionHeader {
    pub(crate) version: u8,
    pub(crate) key_id: String,
    pub(crate) context: Vec<u8>,
}

impl EncryptionHeader {
    /// Appends the encoded body.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.push(self.version);
        for field in [self.key_id.as_bytes(), &self.context] {
            out.push(u8::try_from(field.len()).expect("fields of at most 255 bytes"));
            out.extend_from_slice(field);
        }
    }

    /// Parses the body.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, DamageKind> {
        let (version, rest) = bytes.split_first().ok_or(DamageKind::MetadataHeader)?;
        let (key_id, rest) = field(rest)?;
        let (context, rest) = field(rest)?;
        if !rest.is_empty() {
            return Err(DamageKind::MetadataHeader);
        }
        Ok(EncryptionHeader {
            version: *version,
            key_id: String::from_utf8(key_id.to_vec()).map_err(|_| DamageKind::MetadataHeader)?,
            context: context.to_vec(),
        })
    }
}

fn field(bytes: &[u8]) -> Result<(&[u8], &[u8]), DamageKind> {
    let (len, rest) = bytes.split_first().ok_or(DamageKind::MetadataHeader)?;
    rest.split_at_checked(usize::from(*len))
        .ok_or(DamageKind::MetadataHeader)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_header_round_trips_and_other_bytes_are_rejected() {
        let metadata = EncryptionHeader {
            version: 1,
            key_id: "testkey".to_owned(),
            context: vec![5; 32],
        };
        let mut bytes = Vec::new();
        metadata.put(&mut bytes);
        assert_eq!(bytes.len(), 1 + 1 + 7 + 1 + 32);
        assert_eq!(EncryptionHeader::parse(&bytes), Ok(metadata));
        for len in 0..bytes.len() {
            assert_eq!(
                EncryptionHeader::parse(&bytes[..len]),
                Err(DamageKind::MetadataHeader)
            );
        }
        bytes.push(0);
        assert_eq!(
            EncryptionHeader::parse(&bytes),
            Err(DamageKind::MetadataHeader)
        );
    }
}
