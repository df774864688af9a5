//! Why a text is not JSON, and why a path cannot be read or changed.

use thiserror::Error;

/// A text is not JSON: where, and what was wrong there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{kind} at byte {offset}")]
pub struct JsonError {
    /// Bytes from the start of the text to the first byte that does not fit; the length of the text when it ends too
    /// early.
    pub offset: usize,
    /// What was wrong.
    pub kind: JsonErrorKind,
}

/// What was wrong with a text that is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JsonErrorKind {
    /// The text ends inside a value, or has none.
    #[error("the text ends too early")]
    UnexpectedEnd,
    /// Neither a value nor what may stand beside one.
    #[error("unexpected byte")]
    UnexpectedByte,
    /// More after the one value of the text.
    #[error("more text after the value")]
    TrailingText,
    /// A control character (below 0x20) in a string; it has to be escaped (RFC 8259 section 7).
    #[error("unescaped control character in a string")]
    ControlCharacter,
    /// A backslash in a string that starts no escape of RFC 8259 section 7.
    #[error("malformed escape in a string")]
    BadEscape,
    /// A number that RFC 8259 section 6 has no form for.
    #[error("malformed number")]
    BadNumber,
    /// Not UTF-8 (RFC 8259 section 8.1).
    #[error("invalid UTF-8")]
    BadUtf8,
    /// More arrays and objects inside one another than [`MAX_DEPTH`](crate::MAX_DEPTH).
    #[error("nested too deeply")]
    TooDeep,
}

/// Why a path cannot be read or changed. The names are those of the statuses that clients get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SubdocError {
    /// A component of the path is not in the document.
    #[error("the path is not in the document")]
    PathEnoent,
    /// A component asks for a member where no object is or for an element where no array is, or what is there is not
    /// what the operation is for.
    #[error("the path treats a part of the document as what it is not")]
    PathMismatch,
    /// The path does not parse, or ends in what the operation is not for.
    #[error("the path does not parse or makes no sense for this operation")]
    PathEinval,
    /// The path is longer than [`PATH_BYTES_MAX`](crate::PATH_BYTES_MAX).
    #[error("the path is too long")]
    PathE2big,
    /// The path has more components than [`PATH_COMPONENTS_MAX`](crate::PATH_COMPONENTS_MAX).
    #[error("the path has too many components")]
    PathE2deep,
    /// What is to be added is there already.
    #[error("the path or the element is there already")]
    PathEexists,
    /// The value is not JSON at that place, no primitive where only one may be, or the sum does not fit 64 bits.
    #[error("the value cannot be inserted at that place")]
    ValueCantinsert,
    /// With the value the document would be nested deeper than [`SUBDOC_DEPTH_MAX`](crate::SUBDOC_DEPTH_MAX).
    #[error("the document would be nested too deeply")]
    ValueEtoodeep,
    /// The document is not JSON, as far as it was read.
    #[error("the document is not JSON")]
    DocNotjson,
    /// The document is nested deeper than [`SUBDOC_DEPTH_MAX`](crate::SUBDOC_DEPTH_MAX), as far as it was read.
    #[error("the document is nested too deeply")]
    DocE2deep,
    /// The whole number there does not fit a signed integer of 64 bits.
    #[error("the number there does not fit 64 bits")]
    NumErange,
    /// What is to be added to a number is 0, or no whole number of 64 bits.
    #[error("the delta is zero or no whole number of 64 bits")]
    DeltaEinval,
}
