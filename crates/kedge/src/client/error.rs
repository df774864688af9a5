//! Errors between a tool and a server.

use std::io;

use kedge_protocol::binary::FrameError;
use kedge_types::Status;

/// The reason why a request of a tool failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Nothing answers at the address.
    #[error("cannot connect to {address}: {source}{}", connect_hint(source))]
    Connect {
        /// The `HOST:PORT` of the command line.
        address: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The connection broke, or a reply timed out.
    #[error("connection to {address} broke: {source}")]
    Io {
        /// The `HOST:PORT` of the command line.
        address: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The server closed the connection instead of replying.
    #[error("{address} closed the connection")]
    Closed {
        /// The `HOST:PORT` of the command line.
        address: String,
    },
    /// The received data is not the binary protocol.
    #[error("{address} does not speak the binary protocol: {source:?}; is it the key-value port?")]
    Protocol {
        /// The `HOST:PORT` of the command line.
        address: String,
        /// The error of the frame.
        source: FrameError,
    },
    /// A frame is well formed, but is no reply to the request.
    #[error("unexpected reply from {address}: {what}")]
    Unexpected {
        /// The `HOST:PORT` of the command line.
        address: String,
        /// The error.
        what: String,
    },
    /// The server refused.
    #[error("{command}: {}{}", status_text(*code), context_text(context))]
    Refused {
        /// The command.
        command: &'static str,
        /// The status code as received.
        code: u16,
        /// The server's error message; may be empty.
        context: String,
    },
    /// Management refused.
    #[error("the server refused (HTTP {code}): {words}")]
    Http {
        /// Status code.
        code: u16,
        /// The server's error message.
        words: String,
    },
    /// User or password is wrong.
    #[error("authentication as \"{user}\" failed: wrong user or password")]
    Login {
        /// The user.
        user: String,
    },
    /// The login failed for another reason.
    #[error("authentication failed: {0}")]
    Sasl(#[from] kedge_auth::AuthError),
}

impl ClientError {
    /// Returns the status if the server refused the request.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Refused { code, .. } => Status::from_wire(*code),
            Self::Login { .. } => Some(Status::AuthError),
            _ => None,
        }
    }

    /// Returns whether the connection cannot be used any more.
    #[must_use]
    pub const fn is_fatal(&self) -> bool {
        !matches!(
            self,
            Self::Refused { .. } | Self::Login { .. } | Self::Http { .. }
        )
    }
}

/// Returns a status as text for people.
#[must_use]
pub(crate) fn status_text(code: u16) -> String {
    match Status::from_wire(code) {
        Some(status) => format!("{} (0x{code:02x})", status.name()),
        None => format!("status 0x{code:02x}"),
    }
}

fn context_text(context: &str) -> String {
    if context.is_empty() {
        String::new()
    } else {
        format!(": {context}")
    }
}

fn connect_hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::ConnectionRefused => "; is the server running, and is this its port?",
        io::ErrorKind::TimedOut => "; is the address right, and is there a firewall between?",
        _ => "",
    }
}
