//! The SASL mechanisms.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;
use crate::hash::Hash;

/// A SASL mechanism, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mechanism {
    /// SCRAM (RFC 5802) with SHA-512. The only one that some clients try.
    ScramSha512,
    /// SCRAM with SHA-256 (RFC 7677).
    ScramSha256,
    /// SCRAM with SHA-1 (RFC 5802).
    ScramSha1,
    /// The password in clear (RFC 4616).
    Plain,
}

impl Mechanism {
    /// All mechanisms, in the order in which they are offered.
    pub const ALL: [Self; 4] = [
        Self::ScramSha512,
        Self::ScramSha256,
        Self::ScramSha1,
        Self::Plain,
    ];

    /// What a client that asks for the list of mechanisms gets: the names, separated by a space.
    pub const LIST: &'static str = "SCRAM-SHA512 SCRAM-SHA256 SCRAM-SHA1 PLAIN";

    /// The mechanism of this name, which is case-sensitive.
    ///
    /// The names are the memcached protocol's: `SCRAM-SHA512`, not `SCRAM-SHA-512` as IANA has it.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|m| m.name().as_bytes() == name)
    }

    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ScramSha512 => "SCRAM-SHA512",
            Self::ScramSha256 => "SCRAM-SHA256",
            Self::ScramSha1 => "SCRAM-SHA1",
            Self::Plain => "PLAIN",
        }
    }

    /// The hash of a SCRAM mechanism.
    pub(crate) const fn hash(self) -> Option<Hash> {
        match self {
            Self::ScramSha512 => Some(Hash::Sha512),
            Self::ScramSha256 => Some(Hash::Sha256),
            Self::ScramSha1 => Some(Hash::Sha1),
            Self::Plain => None,
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mechanism {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::from_name(name.as_bytes()).ok_or_else(|| Error::UnknownMechanism(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_the_names() {
        assert_eq!(
            Mechanism::LIST,
            Mechanism::ALL.map(Mechanism::name).join(" ")
        );
        for mechanism in Mechanism::ALL {
            assert_eq!(mechanism.name().parse(), Ok(mechanism));
        }
        for name in ["", "plain", "SCRAM-SHA-512", "SCRAM-SHA512 ", "OAUTHBEARER"] {
            assert_eq!(Mechanism::from_name(name.as_bytes()), None, "{name:?}");
        }
    }
}
