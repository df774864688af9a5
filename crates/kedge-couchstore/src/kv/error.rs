//! The errors of decoding the key-value engine's data.

/// The reason why a key, metadata or a local document is malformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KvError {
    /// Metadata of a length that no supported version has.
    #[error("expected metadata of 18, 19 or 25 bytes, found {found}")]
    RevMetaLength {
        /// The length.
        found: usize,
    },
    /// Metadata of 16 bytes, from releases without an upgrade path.
    #[error(
        "expected metadata with a datatype (18 bytes or more), found the 16 bytes of version 0"
    )]
    RevMetaVersion0,
    /// Unknown operation of a SyncWrite.
    #[error("expected SyncWrite operation 0, 1 or 2, found {found}")]
    SyncWriteOperation {
        /// The byte in the file.
        found: u8,
    },
    /// Unknown level of a prepare.
    #[error("expected durability level 1, 2 or 3, found {found}")]
    DurabilityLevel {
        /// The number in the file.
        found: u64,
    },
    /// A datatype with undefined bits.
    #[error("expected datatype bits within 0x07, found {found:#04x}")]
    Datatype {
        /// The bits in the file.
        found: u8,
    },
    /// A `content_meta` with undefined bits.
    #[error("expected content_meta bits within 0x83, found {found:#04x}")]
    ContentMeta {
        /// The bits in the file.
        found: u8,
    },
    /// The deleted flag, the key's namespace and the metadata of an entry contradict each other.
    #[error("expected {expected}")]
    Entry {
        /// The violated condition.
        expected: &'static str,
    },
    /// A key that is none of a document, a prepare or a system event.
    #[error("expected {expected} in a key")]
    Key {
        /// The part that is missing or wrong.
        expected: &'static str,
    },
    /// Statistics that are not two or three LEB128 numbers.
    #[error("expected {expected} in a document of statistics")]
    Stats {
        /// The part that is missing or wrong.
        expected: &'static str,
    },
    /// A value that does not match its datatype.
    #[error("expected a value with {expected}")]
    Value {
        /// The part that is missing or wrong.
        expected: &'static str,
    },
    /// `_local/vbstate` is not the required JSON.
    #[error("expected the state of a vBucket as JSON: {reason}")]
    VbState {
        /// The JSON error, with line and column.
        reason: String,
    },
    /// A flatbuffer is damaged, or lacks a required field.
    #[error("expected {expected} at byte {offset} of a flatbuffer")]
    Flatbuffer {
        /// The offset in the flatbuffer, in bytes.
        offset: usize,
        /// The expected contents.
        expected: &'static str,
    },
}
