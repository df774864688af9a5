//! The address of a cluster's prefix in etcd, and how to log in.
//!
//! ```text
//! etcd://HOST:2379[,HOST:2379...]/PREFIX[?ca=FILE&cert=FILE&key=FILE&server-name=NAME&user=NAME&password-file=FILE]
//! ```
//!
//! With `ca` the connections use TLS. Passwords and keys are in files, which are read again for each connection, so that
//! they can be replaced without a restart, and appear in no list of processes.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::str::FromStr;

use crate::CoordinationError;

/// The port of an endpoint without one.
const DEFAULT_PORT: u16 = 2379;
/// The form of an address, for error messages.
const FORM: &str = "etcd://HOST:PORT[,HOST:PORT...]/PREFIX[?OPTION=VALUE&...]";
/// The options of an address.
const OPTIONS: [&str; 6] = ["ca", "cert", "key", "server-name", "user", "password-file"];

/// The endpoints, the prefix and the credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdConfig {
    /// The members of etcd, each as `HOST:PORT`. They are tried in turn.
    pub endpoints: Vec<String>,
    /// The prefix of the cluster's keys, without slashes at its ends. The keys are those below `/PREFIX/`.
    pub prefix: String,
    /// TLS; plain connections without.
    pub tls: Option<EtcdTls>,
    /// The user to log in as.
    pub user: Option<EtcdUser>,
}

/// Certificates, as files in PEM form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdTls {
    /// The authorities that may have signed etcd's certificates.
    pub ca: PathBuf,
    /// The client's certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name in etcd's certificates, if it is not the host of the endpoint.
    pub server_name: Option<String>,
}

/// A user of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdUser {
    /// The name.
    pub name: String,
    /// The file whose first line is the password.
    pub password_file: PathBuf,
}

impl FromStr for EtcdConfig {
    type Err = CoordinationError;

    fn from_str(url: &str) -> Result<Self, CoordinationError> {
        let invalid = |why: String| CoordinationError::Invalid(format!("{why}: {url}"));
        let rest = url
            .strip_prefix("etcd://")
            .ok_or_else(|| invalid(format!("the address is not {FORM}")))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let endpoints: Vec<String> = hosts.split(',').map(with_port).collect();
        if endpoints
            .iter()
            .any(|it| it.starts_with(':') || it.contains('@'))
        {
            return Err(invalid("an endpoint is HOST:PORT".to_owned()));
        }
        let prefix = prefix.trim_matches('/').to_owned();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/".contains(&byte);
        if prefix.is_empty() || !prefix.bytes().all(is_plain) {
            let why = "a prefix has one or more of the characters A-Z, a-z, 0-9, -, ., _ and /";
            return Err(invalid(why.to_owned()));
        }
        let (tls, user) = parse_options(query).map_err(invalid)?;
        Ok(EtcdConfig {
            endpoints,
            prefix,
            tls,
            user,
        })
    }
}

/// Adds the port to a host that has none. An address of IPv6 is in brackets.
fn with_port(host: &str) -> String {
    let after_address = host.rsplit(']').next().unwrap_or(host);
    if after_address.contains(':') {
        host.to_owned()
    } else {
        format!("{host}:{DEFAULT_PORT}")
    }
}

fn parse_options(query: &str) -> Result<(Option<EtcdTls>, Option<EtcdUser>), String> {
    let pairs: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect();
    let mut names = BTreeSet::new();
    for (name, _) in &pairs {
        if !OPTIONS.contains(&name.as_str()) {
            let known = OPTIONS.join(", ");
            return Err(format!("there is no option {name}; there are {known}"));
        }
        if !names.insert(name) {
            return Err(format!("the option {name} is given twice"));
        }
    }
    let option = |wanted: &str| {
        let found = pairs.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.clone())
    };
    let identity = match (option("cert"), option("key")) {
        (Some(cert), Some(key)) => Some((cert.into(), key.into())),
        (None, None) => None,
        _ => return Err("the options cert and key belong together".to_owned()),
    };
    let server_name = option("server-name");
    let tls = match option("ca") {
        Some(ca) => Some(EtcdTls {
            ca: ca.into(),
            identity,
            server_name,
        }),
        None if identity.is_some() || server_name.is_some() => {
            return Err("the options cert, key and server-name need ca".to_owned());
        }
        None => None,
    };
    let user = match (option("user"), option("password-file")) {
        (Some(name), Some(file)) => Some(EtcdUser {
            name,
            password_file: file.into(),
        }),
        (None, None) => None,
        _ => return Err("the options user and password-file belong together".to_owned()),
    };
    Ok((tls, user))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        let config: EtcdConfig = "etcd://a:1,b,[::1],[::2]:3/kedge/one/"
            .parse()
            .expect("it is valid");
        assert_eq!(config.endpoints, ["a:1", "b:2379", "[::1]:2379", "[::2]:3"]);
        assert_eq!(config.prefix, "kedge/one");
        assert_eq!((config.tls, config.user), (None, None));
        let config: EtcdConfig =
            "etcd://a/p?ca=%2Fca.pem&cert=c&key=k&server-name=n&user=u&password-file=f"
                .parse()
                .expect("it is valid");
        let tls = config.tls.expect("it has ca");
        assert_eq!(tls.ca, PathBuf::from("/ca.pem"));
        assert_eq!(tls.identity, Some(("c".into(), "k".into())));
        assert_eq!(tls.server_name.as_deref(), Some("n"));
        assert_eq!(config.user.expect("it has user").name, "u");
    }

    #[test]
    fn wrong_addresses_are_refused() {
        for url in [
            "http://a/p",
            "etcd://a",
            "etcd://a/",
            "etcd:///p",
            "etcd://u:p@a/p",
            "etcd://a/p q",
            "etcd://a/p?cert=c",
            "etcd://a/p?cert=c&key=k",
            "etcd://a/p?user=u",
            "etcd://a/p?ca=a&ca=b",
            "etcd://a/p?password=x",
        ] {
            let parsed = url.parse::<EtcdConfig>();
            assert!(parsed.is_err(), "{url}");
        }
    }
}
