//! `content_meta`: how a body is stored. Couchstore file format, section 2.4.

use super::KvError;
use kedge_types::Datatype;

const COMPRESSED: u8 = 0x80;
const KIND: u8 = 0x03;
const JSON: u8 = 0;
const NOT_JSON: u8 = 3;

/// Whether the store compressed a body, and whether its text is JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentMeta(u8);

impl ContentMeta {
    /// What the engine writes for a value. The store compresses everything that has bytes and is not compressed yet.
    #[must_use]
    pub const fn of_value(datatype: Datatype, value_bytes: usize) -> Self {
        let kind = if datatype.contains(Datatype::JSON) {
            JSON
        } else {
            NOT_JSON
        };
        if value_bytes > 0 && !datatype.contains(Datatype::SNAPPY) {
            Self(kind | COMPRESSED)
        } else {
            Self(kind)
        }
    }

    /// The byte of an entry.
    ///
    /// # Errors
    /// A bit that has no meaning is set.
    pub const fn from_bits(bits: u8) -> Result<Self, KvError> {
        if bits & !(COMPRESSED | KIND) == 0 {
            Ok(Self(bits))
        } else {
            Err(KvError::ContentMeta { found: bits })
        }
    }

    /// The byte as it stands in an entry.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether the body is one raw Snappy block made by the store, which readers take off again.
    #[must_use]
    pub const fn is_compressed(self) -> bool {
        self.0 & COMPRESSED != 0
    }

    /// Whether the value was known to be JSON when it was written.
    #[must_use]
    pub const fn is_json(self) -> bool {
        self.0 & KIND == JSON
    }

    /// The datatype of a value that a file says has `datatype`: one without bytes has none, whatever the file says.
    #[must_use]
    pub const fn datatype_of_value(datatype: Datatype, value_bytes: usize) -> Datatype {
        if value_bytes == 0 {
            Datatype::RAW
        } else {
            datatype
        }
    }
}
