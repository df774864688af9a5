//! Counters of handshakes.

use std::sync::atomic::{AtomicU64, Ordering};

use rustls::{AlertDescription, CertificateError, Error};

/// Counters of the handshakes of all ports that share a [`crate::ServerTls`].
#[derive(Debug, Default)]
pub struct TlsMetrics {
    full: AtomicU64,
    resumed: AtomicU64,
    failures: [AtomicU64; FailureReason::ALL.len()],
    reloads: AtomicU64,
    failed_reloads: AtomicU64,
}

/// The reason of a failed handshake, as a label of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum FailureReason {
    /// The peer closed the connection, or was too slow.
    Closed,
    /// The bytes are not TLS.
    NotTls,
    /// No version, cipher suite or group in common.
    Incompatible,
    /// The client refused the server's certificate.
    RefusedByClient,
    /// No client certificate came, and one is mandatory.
    NoClientCertificate,
    /// The client certificate is expired.
    Expired,
    /// The client certificate is revoked.
    Revoked,
    /// The client certificate is of an unknown CA.
    UnknownCa,
    /// The client certificate is invalid for another reason.
    BadCertificate,
    /// The client certificate has no usable user name.
    NoUserName,
    /// Any other reason.
    Other,
}

impl FailureReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 11] = [
        Self::Closed,
        Self::NotTls,
        Self::Incompatible,
        Self::RefusedByClient,
        Self::NoClientCertificate,
        Self::Expired,
        Self::Revoked,
        Self::UnknownCa,
        Self::BadCertificate,
        Self::NoUserName,
        Self::Other,
    ];

    /// The label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::NotTls => "not_tls",
            Self::Incompatible => "incompatible",
            Self::RefusedByClient => "refused_by_client",
            Self::NoClientCertificate => "no_client_certificate",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::UnknownCa => "unknown_ca",
            Self::BadCertificate => "bad_certificate",
            Self::NoUserName => "no_user_name",
            Self::Other => "other",
        }
    }

    /// Returns the reason of an error of the TLS library.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        match error {
            Error::InvalidMessage(_) | Error::InappropriateMessage { .. } => Self::NotTls,
            Error::PeerIncompatible(_) => Self::Incompatible,
            Error::NoCertificatesPresented => Self::NoClientCertificate,
            Error::AlertReceived(
                AlertDescription::HandshakeFailure | AlertDescription::ProtocolVersion,
            ) => Self::Incompatible,
            Error::AlertReceived(
                AlertDescription::CloseNotify | AlertDescription::UserCanceled,
            ) => Self::Closed,
            Error::AlertReceived(_) => Self::RefusedByClient,
            Error::InvalidCertificate(why) => match why {
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    Self::Expired
                }
                CertificateError::Revoked => Self::Revoked,
                CertificateError::UnknownIssuer => Self::UnknownCa,
                _ => Self::BadCertificate,
            },
            _ => Self::Other,
        }
    }
}

impl TlsMetrics {
    /// Counts a handshake that succeeded.
    pub fn handshake(&self, resumed: bool) {
        let counter = if resumed { &self.resumed } else { &self.full };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a handshake that failed.
    pub fn failure(&self, reason: FailureReason) {
        self.failures[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The number of full handshakes.
    #[must_use]
    pub fn full(&self) -> u64 {
        self.full.load(Ordering::Relaxed)
    }

    /// The number of handshakes that resumed a session.
    #[must_use]
    pub fn resumed(&self) -> u64 {
        self.resumed.load(Ordering::Relaxed)
    }

    /// The number of failed handshakes with that reason.
    #[must_use]
    pub fn failures(&self, reason: FailureReason) -> u64 {
        self.failures[reason as usize].load(Ordering::Relaxed)
    }

    /// The number of reloads that succeeded and that failed.
    #[must_use]
    pub fn reloads(&self) -> (u64, u64) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (of(&self.reloads), of(&self.failed_reloads))
    }

    pub(crate) fn reload(&self, succeeded: bool) {
        let counter = if succeeded {
            &self.reloads
        } else {
            &self.failed_reloads
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_their_own_counters_and_labels() {
        let metrics = TlsMetrics::default();
        for (number, reason) in FailureReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number, "{}", reason.label());
            metrics.failure(reason);
            assert_eq!(metrics.failures(reason), 1);
        }
        let revoked = Error::InvalidCertificate(CertificateError::Revoked);
        assert_eq!(FailureReason::of(&revoked), FailureReason::Revoked);
    }
}
