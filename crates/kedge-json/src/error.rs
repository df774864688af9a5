//! Why a text is not JSON.

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
