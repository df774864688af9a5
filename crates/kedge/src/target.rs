//! The address of a server: `couchbase://HOST:PORT/BUCKET` and similar forms.

use std::fmt;

use kedge_types::limits::BUCKET_NAME_BYTES_MAX;

/// Port of the key-value protocol.
pub const KV_PORT: u16 = 11210;
/// Port of the key-value protocol over TLS.
pub const KV_TLS_PORT: u16 = 11207;
/// Port of plain memcached.
pub const MEMCACHED_PORT: u16 = 11211;
/// Port of Redis.
pub const REDIS_PORT: u16 = 6379;
/// Port of management over HTTP.
pub const MGMT_PORT: u16 = 8091;

/// Port of management over HTTPS.
pub const MGMT_TLS_PORT: u16 = 18091;

/// The protocol at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// The memcached binary protocol with Couchbase's extensions.
    Couchbase,
    /// Plain memcached.
    Memcached,
    /// RESP.
    Redis,
    /// Management over HTTP.
    Http,
}

impl Scheme {
    /// Returns the default port.
    #[must_use]
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Couchbase => KV_PORT,
            Self::Memcached => MEMCACHED_PORT,
            Self::Redis => REDIS_PORT,
            Self::Http => MGMT_PORT,
        }
    }
}

/// A parsed address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    /// The protocol; `None` if the text has no scheme.
    pub scheme: Option<Scheme>,
    /// True if the scheme asks for TLS.
    pub tls: bool,
    /// Host name or address, without the brackets of IPv6.
    pub host: String,
    /// The port, if given.
    pub port: Option<u16>,
    /// The bucket, if given.
    pub bucket: Option<String>,
}

/// The reason why a text is no valid address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The scheme is unknown.
    #[error(
        "unknown scheme \"{0}\"; known are couchbase, couchbases, memcached, redis, http and https"
    )]
    Scheme(String),
    /// TLS is not supported with this protocol.
    #[error("{0} asks for TLS, which is supported with couchbases:// and https:// only")]
    Tls(String),
    /// The host is missing.
    #[error("no host in \"{0}\"; expected SCHEME://HOST:PORT/BUCKET")]
    Host(String),
    /// The port is not a number from 1 to 65,535.
    #[error("bad port \"{0}\"; expected 1 to 65535")]
    Port(String),
    /// The bucket's name is too long.
    #[error("bucket name longer than {BUCKET_NAME_BYTES_MAX} bytes")]
    Bucket,
}

impl ServerUrl {
    /// Parses `[SCHEME://]HOST[:PORT][/BUCKET][?OPTIONS]`. IPv6 addresses are in brackets. Options are for the SDKs and
    /// are ignored.
    ///
    /// # Errors
    /// [`TargetError`] with the reason.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let (scheme, tls, rest) = match text.split_once("://") {
            Some((scheme, rest)) => {
                let (scheme, tls) = parse_scheme(scheme)?;
                (Some(scheme), tls, rest)
            }
            None => (None, false, text),
        };
        let rest = rest.split('?').next().unwrap_or_default();
        let (place, bucket) = match rest.split_once('/') {
            Some((place, bucket)) => (place, Some(bucket.trim_end_matches('/'))),
            None => (rest, None),
        };
        let (host, port) = split_place(place).ok_or_else(|| TargetError::Host(text.to_owned()))?;
        let port = match port {
            None => None,
            Some(digits) => match digits.parse() {
                Ok(port) if port > 0 => Some(port),
                _ => return Err(TargetError::Port(digits.to_owned())),
            },
        };
        let bucket = bucket.filter(|name| !name.is_empty());
        if bucket.is_some_and(|name| name.len() > BUCKET_NAME_BYTES_MAX) {
            return Err(TargetError::Bucket);
        }
        Ok(Self {
            scheme,
            tls,
            host: host.to_owned(),
            port,
            bucket: bucket.map(str::to_owned),
        })
    }

    /// Returns the port, or the scheme's default port if the text has none.
    #[must_use]
    pub fn port_or(&self, scheme: Scheme) -> u16 {
        self.port.unwrap_or(match (scheme, self.tls) {
            (Scheme::Couchbase, true) => KV_TLS_PORT,
            (Scheme::Http, true) => MGMT_TLS_PORT,
            _ => scheme.default_port(),
        })
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host)?;
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

/// Returns the protocol, and true if it is over TLS.
fn parse_scheme(scheme: &str) -> Result<(Scheme, bool), TargetError> {
    match scheme {
        "couchbase" => Ok((Scheme::Couchbase, false)),
        "couchbases" => Ok((Scheme::Couchbase, true)),
        "memcached" => Ok((Scheme::Memcached, false)),
        "redis" => Ok((Scheme::Redis, false)),
        "http" => Ok((Scheme::Http, false)),
        "https" => Ok((Scheme::Http, true)),
        "rediss" => Err(TargetError::Tls(format!("{scheme}://"))),
        other => Err(TargetError::Scheme(other.to_owned())),
    }
}

/// Returns the host and the text of the port; `None` if there is no host.
fn split_place(place: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = place.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        let port = after.strip_prefix(':');
        // Text between the bracket and the colon is invalid.
        return (!host.is_empty() && (after.is_empty() || port.is_some())).then_some((host, port));
    }
    let (host, port) = match place.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (place, None),
    };
    (!host.is_empty()).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(
        scheme: Option<Scheme>,
        host: &str,
        port: Option<u16>,
        bucket: Option<&str>,
    ) -> Result<ServerUrl, TargetError> {
        Ok(ServerUrl {
            scheme,
            tls: false,
            host: host.into(),
            port,
            bucket: bucket.map(str::to_owned),
        })
    }

    #[test]
    fn addresses_are_parsed() {
        use Scheme::{Couchbase, Http, Memcached, Redis};
        let table = [
            (
                "couchbase://127.0.0.1:12000/default",
                target(Some(Couchbase), "127.0.0.1", Some(12000), Some("default")),
            ),
            ("couchbase://h", target(Some(Couchbase), "h", None, None)),
            (
                "couchbase://h/b/?network=x",
                target(Some(Couchbase), "h", None, Some("b")),
            ),
            (
                "memcached://h:1",
                target(Some(Memcached), "h", Some(1), None),
            ),
            (
                "redis://[::1]:6379",
                target(Some(Redis), "::1", Some(6379), None),
            ),
            (
                "http://[fe80::1]/",
                target(Some(Http), "fe80::1", None, None),
            ),
            (
                "localhost:11211",
                target(None, "localhost", Some(11211), None),
            ),
            (
                "couchbases://h",
                target(Some(Couchbase), "h", None, None).map(|it| ServerUrl { tls: true, ..it }),
            ),
            (
                "https://h:1",
                target(Some(Http), "h", Some(1), None).map(|it| ServerUrl { tls: true, ..it }),
            ),
            ("rediss://h", Err(TargetError::Tls("rediss://".into()))),
            ("ftp://h", Err(TargetError::Scheme("ftp".into()))),
            (
                "couchbase://",
                Err(TargetError::Host("couchbase://".into())),
            ),
            ("[::1]x:5", Err(TargetError::Host("[::1]x:5".into()))),
            ("h:0", Err(TargetError::Port("0".into()))),
            ("h:65536", Err(TargetError::Port("65536".into()))),
        ];
        for (text, expected) in table {
            assert_eq!(ServerUrl::parse(text), expected, "{text}");
        }
        let port = |text, scheme| ServerUrl::parse(text).expect("it is valid").port_or(scheme);
        assert_eq!(port("couchbases://h", Couchbase), KV_TLS_PORT);
        assert_eq!(port("https://h", Http), MGMT_TLS_PORT);
        assert_eq!(
            ServerUrl::parse(&format!("h/{}", "b".repeat(101))),
            Err(TargetError::Bucket)
        );
    }
}
