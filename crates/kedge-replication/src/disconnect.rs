//! Why a connection ends.

use kedge_types::Status;

/// Why this end closes the connection. The streams are gone; they go on from their resume points on another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Disconnect {
    /// Nothing came from the other end for too long.
    #[error("the other end was silent for too long")]
    Silent,
    /// The other end has acknowledged nothing for too long, and its buffer is full.
    #[error("the consumer's buffer was full for too long")]
    Stuck,
    /// The other end sent something that is no message, or has no place here.
    #[error("message {opcode:#04x} of the other end is refused: {status:?}")]
    BadMessage {
        /// Its number.
        opcode: u8,
        /// What is wrong with it.
        status: Status,
    },
    /// The other end refused a message without which the connection is of no use.
    #[error("the other end refused message {opcode:#04x} with status {status:#06x}")]
    Refused {
        /// Number of the message.
        opcode: u8,
        /// The status, which need not be a known one.
        status: u16,
    },
    /// The other end refused to set a property without which the connection is of no use.
    #[error("the other end refused to set {key} with status {status:#06x}")]
    ControlRefused {
        /// Which.
        key: &'static str,
        /// The status, which need not be a known one.
        status: u16,
    },
}
