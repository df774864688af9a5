//! The errors of JSON texts and of sub-document operations.

use thiserror::Error;

/// A syntax error of a text: its position and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{kind} at byte {offset}")]
pub struct JsonError {
    /// Offset of the first wrong byte from the start of the text, in bytes; the length of the text if it ends too
    /// early.
    pub offset: usize,
    /// The kind of the error.
    pub kind: JsonErrorKind,
}

/// The kind of a JSON syntax error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JsonErrorKind {
    /// The text ends inside a value, or has none.
    #[error("the text ends too early")]
    UnexpectedEnd,
    /// A byte that starts neither a value nor a token that is valid here.
    #[error("unexpected byte")]
    UnexpectedByte,
    /// Further text after the value.
    #[error("more text after the value")]
    TrailingText,
    /// An unescaped control character (below 0x20) in a string (RFC 8259 section 7).
    #[error("unescaped control character in a string")]
    ControlCharacter,
    /// A backslash in a string that starts no escape sequence of RFC 8259 section 7.
    #[error("malformed escape in a string")]
    BadEscape,
    /// A malformed number (RFC 8259 section 6).
    #[error("malformed number")]
    BadNumber,
    /// Invalid UTF-8 (RFC 8259 section 8.1).
    #[error("invalid UTF-8")]
    BadUtf8,
    /// More nested arrays and objects than [`MAX_DEPTH`](crate::MAX_DEPTH).
    #[error("nested too deeply")]
    TooDeep,
}

/// The reason why a sub-document operation failed. The names are those of the protocol's statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SubdocError {
    /// A component of the path does not exist in the document.
    #[error("the path is not in the document")]
    PathEnoent,
    /// A component names a member of a value that is no object or an element of a value that is no array, or the value
    /// has the wrong type for the operation.
    #[error("the path does not match the structure of the document")]
    PathMismatch,
    /// The path is malformed, or its end does not suit the operation.
    #[error("the path is malformed or does not suit the operation")]
    PathEinval,
    /// The path is longer than [`PATH_BYTES_MAX`](crate::PATH_BYTES_MAX).
    #[error("the path is too long")]
    PathE2big,
    /// The path has more components than [`PATH_COMPONENTS_MAX`](crate::PATH_COMPONENTS_MAX).
    #[error("the path has too many components")]
    PathE2deep,
    /// The member or the element to add exists already.
    #[error("the path or the element exists already")]
    PathEexists,
    /// The value is not JSON at that position, it is no primitive where only a primitive is allowed, or the sum does
    /// not fit into 64 bits.
    #[error("the value cannot be inserted at that place")]
    ValueCantinsert,
    /// The document with the value would be nested deeper than [`SUBDOC_DEPTH_MAX`](crate::SUBDOC_DEPTH_MAX).
    #[error("the document would be nested too deeply")]
    ValueEtoodeep,
    /// The part of the document that was read is not JSON.
    #[error("the document is not JSON")]
    DocNotjson,
    /// The part of the document that was read is nested deeper than [`SUBDOC_DEPTH_MAX`](crate::SUBDOC_DEPTH_MAX).
    #[error("the document is nested too deeply")]
    DocE2deep,
    /// The integer in the document does not fit into 64 bits with sign.
    #[error("the number does not fit into 64 bits")]
    NumErange,
    /// The delta is 0, or not a 64-bit integer.
    #[error("the delta is zero or not a 64-bit integer")]
    DeltaEinval,
}
