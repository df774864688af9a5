//! The reasons for closing a connection.

use kedge_types::Status;

/// The reason for which this end closes the connection. The streams end with it; they resume on another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Disconnect {
    /// The other end sent nothing for too long.
    #[error("the other end was silent for too long")]
    Silent,
    /// The other end has acknowledged nothing for too long, and its buffer is full.
    #[error("the consumer's buffer was full for too long")]
    Stuck,
    /// The other end sent an invalid or unexpected message.
    #[error("message {opcode:#04x} of the other end is refused: {status:?}")]
    BadMessage {
        /// The opcode of the message.
        opcode: u8,
        /// The error of the message.
        status: Status,
    },
    /// The other end refused a message that the connection needs.
    #[error("the other end refused message {opcode:#04x} with status {status:#06x}")]
    Refused {
        /// The opcode of the message.
        opcode: u8,
        /// The status code, which may be an unknown one.
        status: u16,
    },
    /// The other end follows a map of another epoch.
    #[error(
        "the maps of the two nodes have different epochs; the link is opened again when the older one is replaced"
    )]
    OtherEpoch,
    /// The other end refused to set a property that the connection needs.
    #[error("the other end refused to set {key} with status {status:#06x}")]
    ControlRefused {
        /// The name of the property.
        key: &'static str,
        /// The status code, which may be an unknown one.
        status: u16,
    },
}
