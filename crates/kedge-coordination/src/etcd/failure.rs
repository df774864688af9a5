//! Failures of requests to etcd, by what may be done about them.

use std::error::Error as _;
use std::io;

use etcd_client::Error;

use crate::CoordinationError;

/// gRPC's number of a code, as `etcd-client` does not export the type.
mod code {
    pub(super) const INVALID_ARGUMENT: i32 = 3;
    pub(super) const NOT_FOUND: i32 = 5;
    pub(super) const PERMISSION_DENIED: i32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: i32 = 8;
    pub(super) const FAILED_PRECONDITION: i32 = 9;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}

/// A failed request.
#[derive(Debug)]
pub(super) enum Failure {
    /// etcd has answered, and would answer the same again.
    Final(CoordinationError),
    /// The request had no effect. It can be sent again, on another connection.
    NoEffect(String),
    /// There is no answer, so that the request may have had its effect.
    Lost(String),
}

impl From<CoordinationError> for Failure {
    fn from(error: CoordinationError) -> Self {
        Failure::Final(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::GRpcStatus(status) => {
                let number = status.code() as i32;
                let refused = is_refused_connection(&status);
                by_status(number, status.message(), refused)
            }
            Error::TransportError(_) | Error::IoError(_) | Error::EndpointError(_) => {
                Failure::NoEffect(chain(&error))
            }
            Error::InvalidArgs(_) | Error::InvalidUri(_) | Error::InvalidMetadataValue(_) => {
                Failure::Final(CoordinationError::Invalid(error.to_string()))
            }
            other => Failure::Lost(chain(&other)),
        }
    }
}

/// Decides by the code and by etcd's text, which its own clients match as well (`rpctypes/error.go`).
fn by_status(number: i32, text: &str, refused_connection: bool) -> Failure {
    let has = |part: &str| text.contains(part);
    let owned = text.to_owned();
    if has("permission denied") {
        return Failure::Final(CoordinationError::NoPermission(owned));
    }
    let no_effect = [
        "no leader",
        "too many requests",
        "not capable",
        "revision in header is old",
        "invalid auth token",
    ];
    if refused_connection || no_effect.into_iter().any(has) {
        return Failure::NoEffect(owned);
    }
    match number {
        code::PERMISSION_DENIED | code::UNAUTHENTICATED => {
            Failure::Final(CoordinationError::NoPermission(owned))
        }
        code::INVALID_ARGUMENT if has("user name is empty") || has("authentication failed") => {
            Failure::Final(CoordinationError::NoPermission(owned))
        }
        code::FAILED_PRECONDITION if has("authentication is not enabled") => {
            Failure::Final(CoordinationError::NoPermission(owned))
        }
        code::RESOURCE_EXHAUSTED | code::FAILED_PRECONDITION | code::NOT_FOUND => {
            Failure::Final(CoordinationError::Refused(owned))
        }
        code::INVALID_ARGUMENT => Failure::Final(CoordinationError::Invalid(owned)),
        _ => Failure::Lost(owned),
    }
}

/// Returns whether the system refused the connection, so that nothing was sent.
fn is_refused_connection(error: &dyn std::error::Error) -> bool {
    let mut source = error.source();
    while let Some(error) = source {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if kind == Some(io::ErrorKind::ConnectionRefused) {
            return true;
        }
        source = error.source();
    }
    false
}

/// The texts of an error and its causes.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_apart() {
        let cases = [
            (7, "etcdserver: permission denied", "final"),
            (
                3,
                "etcdserver: authentication failed, invalid user ID or password",
                "final",
            ),
            (16, "etcdserver: invalid auth token", "no effect"),
            (8, "etcdserver: mvcc: database space exceeded", "final"),
            (8, "etcdserver: too many requests", "no effect"),
            (14, "etcdserver: no leader", "no effect"),
            (14, "etcdserver: request timed out", "lost"),
            (14, "etcdserver: leader changed", "lost"),
            (2, "transport error", "lost"),
            (3, "etcdserver: request is too large", "final"),
        ];
        for (number, text, expected) in cases {
            let found = match by_status(number, text, false) {
                Failure::Final(_) => "final",
                Failure::NoEffect(_) => "no effect",
                Failure::Lost(_) => "lost",
            };
            assert_eq!(found, expected, "{text}");
        }
    }
}
