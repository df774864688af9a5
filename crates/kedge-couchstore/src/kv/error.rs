//! Why bytes are not what the key-value engine keeps.

/// What was expected of keys, metadata or a local document and not found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KvError {
    /// Metadata of a length that no supported version has.
    #[error("expected metadata of 18, 19 or 25 bytes, found {found}")]
    RevMetaLength {
        /// The length.
        found: usize,
    },
    /// Metadata of 16 bytes, as written by releases that no upgrade path leads from any more.
    #[error(
        "expected metadata with a datatype (18 bytes or more), found the 16 bytes of version 0"
    )]
    RevMetaVersion0,
    /// The operation of a SyncWrite is none of the known ones.
    #[error("expected SyncWrite operation 0, 1 or 2, found {found}")]
    SyncWriteOperation {
        /// The byte found.
        found: u8,
    },
    /// A prepare's level is none of the known ones.
    #[error("expected durability level 1, 2 or 3, found {found}")]
    DurabilityLevel {
        /// The number found.
        found: u64,
    },
    /// A datatype has bits that mean nothing.
    #[error("expected datatype bits within 0x07, found {found:#04x}")]
    Datatype {
        /// The bits found.
        found: u8,
    },
    /// A `content_meta` has bits that mean nothing.
    #[error("expected content_meta bits within 0x83, found {found:#04x}")]
    ContentMeta {
        /// The bits found.
        found: u8,
    },
    /// The deleted flag, the key's namespace and the metadata of an entry contradict each other.
    #[error("expected {expected}")]
    Entry {
        /// What one of them asks of another.
        expected: &'static str,
    },
    /// A key is not one of a document, a prepare or a system event.
    #[error("expected {expected} in a key")]
    Key {
        /// The part that is missing or wrong.
        expected: &'static str,
    },
    /// A document of statistics is not two or three LEB128 numbers.
    #[error("expected {expected} in a document of statistics")]
    Stats {
        /// The part that is missing or wrong.
        expected: &'static str,
    },
    /// A value is not what its datatype says.
    #[error("expected a value with {expected}")]
    Value {
        /// The part that is missing or wrong.
        expected: &'static str,
    },
    /// `_local/vbstate` is not the JSON that it has to be.
    #[error("expected the state of a vBucket as JSON: {reason}")]
    VbState {
        /// What is wrong, with line and column.
        reason: String,
    },
    /// A flatbuffer is damaged, or lacks what it has to have.
    #[error("expected {expected} at byte {offset} of a flatbuffer")]
    Flatbuffer {
        /// Where, from the start of the flatbuffer.
        offset: usize,
        /// What should be there.
        expected: &'static str,
    },
}
