//! The SASL mechanisms.

use std::fmt;
use std::str::FromStr;

use crate::error::AuthError;
use crate::hash::Hash;

/// A SASL mechanism, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mechanism {
    /// SCRAM (RFC 5802) with SHA-512. Some clients try no other.
    ScramSha512,
    /// SCRAM with SHA-256 (RFC 7677).
    ScramSha256,
    /// SCRAM with SHA-1 (RFC 5802).
    ScramSha1,
    /// The password in plain text (RFC 4616).
    Plain,
    /// A token in place of a password (RFC 7628). It is offered on connections with TLS only, if tokens are accepted.
    OauthBearer,
}

impl Mechanism {
    /// All mechanisms with passwords, in the order of the offer.
    pub const ALL: [Self; 4] = [
        Self::ScramSha512,
        Self::ScramSha256,
        Self::ScramSha1,
        Self::Plain,
    ];

    /// The reply to a request for the list of mechanisms: the names, separated by a space.
    pub const LIST: &'static str = "SCRAM-SHA512 SCRAM-SHA256 SCRAM-SHA1 PLAIN";

    /// The same where tokens are accepted.
    pub const LIST_WITH_TOKENS: &'static str =
        "SCRAM-SHA512 SCRAM-SHA256 SCRAM-SHA1 PLAIN OAUTHBEARER";

    /// Returns the mechanism with passwords and this name, which is case-sensitive.
    ///
    /// The names are those of the memcached protocol: `SCRAM-SHA512`, not IANA's `SCRAM-SHA-512`.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|m| m.name().as_bytes() == name)
    }

    /// Returns the name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ScramSha512 => "SCRAM-SHA512",
            Self::ScramSha256 => "SCRAM-SHA256",
            Self::ScramSha1 => "SCRAM-SHA1",
            Self::Plain => "PLAIN",
            Self::OauthBearer => "OAUTHBEARER",
        }
    }

    /// Returns the hash of a SCRAM mechanism.
    pub(crate) const fn hash(self) -> Option<Hash> {
        match self {
            Self::ScramSha512 => Some(Hash::Sha512),
            Self::ScramSha256 => Some(Hash::Sha256),
            Self::ScramSha1 => Some(Hash::Sha1),
            Self::Plain | Self::OauthBearer => None,
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mechanism {
    type Err = AuthError;

    fn from_str(name: &str) -> Result<Self, AuthError> {
        Self::from_name(name.as_bytes()).ok_or_else(|| AuthError::UnknownMechanism(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mechanism_list_has_all_names() {
        assert_eq!(
            Mechanism::LIST,
            Mechanism::ALL.map(Mechanism::name).join(" ")
        );
        let with_tokens = format!("{} {}", Mechanism::LIST, Mechanism::OauthBearer);
        assert_eq!(Mechanism::LIST_WITH_TOKENS, with_tokens);
        for mechanism in Mechanism::ALL {
            assert_eq!(mechanism.name().parse(), Ok(mechanism));
        }
        for name in ["", "plain", "SCRAM-SHA-512", "SCRAM-SHA512 ", "OAUTHBEARER"] {
            assert_eq!(Mechanism::from_name(name.as_bytes()), None, "{name:?}");
        }
    }
}
