//! The engine's use of [`ContentMeta`]. Couchstore file format, section 2.4.

use super::KvError;
use crate::ContentMeta;
use kedge_types::Datatype;

const KIND: u8 = 0x03;
const JSON: u8 = 0;

impl ContentMeta {
    /// Returns the content metadata that the engine writes for a value. The store compresses every non-empty value that
    /// is not compressed yet.
    #[must_use]
    pub const fn of_value(datatype: Datatype, value_bytes: usize) -> Self {
        let kind = if datatype.contains(Datatype::JSON) {
            JSON
        } else {
            Self::NOT_JSON.0
        };
        if value_bytes > 0 && !datatype.contains(Datatype::SNAPPY) {
            Self(kind | Self::COMPRESSED)
        } else {
            Self(kind)
        }
    }

    /// Returns `true` if the value was known to be JSON when it was written.
    #[must_use]
    pub const fn is_json(self) -> bool {
        self.0 & KIND == JSON
    }

    /// Rejects undefined bits.
    pub(super) const fn check(self) -> Result<Self, KvError> {
        if self.0 & !(Self::COMPRESSED | KIND) == 0 {
            Ok(self)
        } else {
            Err(KvError::ContentMeta { found: self.0 })
        }
    }
}

/// Returns the datatype of a value whose file states `datatype`: an empty value has none, whatever the file states.
#[must_use]
pub const fn datatype_of_value(datatype: Datatype, value_bytes: usize) -> Datatype {
    if value_bytes == 0 {
        Datatype::RAW
    } else {
        datatype
    }
}
