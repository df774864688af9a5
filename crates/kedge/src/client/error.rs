//! What can go wrong between a tool and a server.

use std::io;

use kedge_protocol::binary::FrameError;
use kedge_types::Status;

/// Why a tool did not get what it asked a server for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Nobody answers at the address.
    #[error("cannot connect to {address}: {source}{}", connect_hint(source))]
    Connect {
        /// `HOST:PORT` as it was given.
        address: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// The connection broke, or an answer took too long.
    #[error("connection to {address} broke: {source}")]
    Io {
        /// `HOST:PORT` as it was given.
        address: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// The server closed the connection instead of answering.
    #[error("{address} closed the connection")]
    Closed {
        /// `HOST:PORT` as it was given.
        address: String,
    },
    /// What came is not the binary protocol.
    #[error("{address} does not speak the binary protocol: {source:?}; is it the key-value port?")]
    Protocol {
        /// `HOST:PORT` as it was given.
        address: String,
        /// What was wrong with the frame.
        source: FrameError,
    },
    /// A frame was well formed but is no answer to what was asked.
    #[error("{address} answered something else than was asked: {what}")]
    Unexpected {
        /// `HOST:PORT` as it was given.
        address: String,
        /// What was wrong.
        what: String,
    },
    /// The server refused.
    #[error("{command}: {}{}", status_text(*code), context_text(context))]
    Refused {
        /// The command.
        command: &'static str,
        /// Status as it came.
        code: u16,
        /// The server's own words, or nothing.
        context: String,
    },
    /// Management refused.
    #[error("the server refused (HTTP {code}): {words}")]
    Http {
        /// Status code.
        code: u16,
        /// The server's own words.
        words: String,
    },
    /// User or password is wrong.
    #[error("authentication as \"{user}\" failed: wrong user or password")]
    Login {
        /// Who tried.
        user: String,
    },
    /// The login could not be carried out.
    #[error("authentication failed: {0}")]
    Sasl(#[from] kedge_auth::AuthError),
}

impl ClientError {
    /// The status, when the server refused.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Refused { code, .. } => Status::from_wire(*code),
            Self::Login { .. } => Some(Status::AuthError),
            _ => None,
        }
    }

    /// Whether the connection cannot be used any more.
    #[must_use]
    pub const fn is_fatal(&self) -> bool {
        !matches!(
            self,
            Self::Refused { .. } | Self::Login { .. } | Self::Http { .. }
        )
    }
}

/// A status as people read it.
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
