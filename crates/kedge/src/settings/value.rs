//! Kinds of values that only server settings have.

use std::fmt;
use std::ops::Deref;

use kedge_executor::ThreadCount;
use kedge_kms::KeySource;
use kedge_node::pools::{THREADS_KIND, parse_threads, threads_text};
use kedge_tls::NameRules;
use kedge_types::setting::{SettingValue, expected};
use zeroize::Zeroizing;

/// A port, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MaybePort {
    /// There is none.
    Off,
    /// This port; 0 is any free one.
    At(u16),
}

impl MaybePort {
    /// The port, if there is one.
    pub(crate) fn port(self) -> Option<u16> {
        match self {
            Self::Off => None,
            Self::At(port) => Some(port),
        }
    }
}

impl SettingValue for MaybePort {
    const KIND: &'static str = "a number from 0 to 65535, or off";

    fn read(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let port = text.parse().map_err(|_| expected::<Self>())?;
        Ok(Self::At(port))
    }

    fn show(&self) -> String {
        match self {
            Self::Off => "off".to_owned(),
            Self::At(port) => port.to_string(),
        }
    }
}

/// The number of threads of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolThreads(pub(crate) ThreadCount);

impl SettingValue for PoolThreads {
    const KIND: &'static str = THREADS_KIND;

    fn read(text: &str) -> Result<Self, String> {
        parse_threads(text).map(Self)
    }

    fn show(&self) -> String {
        threads_text(self.0)
    }
}

/// Names of hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hosts(pub(crate) Vec<String>);

impl SettingValue for Hosts {
    const KIND: &'static str =
        "host names without ports, separated by commas, such as db1.example.com,.svc.local";

    fn read(text: &str) -> Result<Self, String> {
        let names: Vec<String> = match text.trim() {
            "" => Vec::new(),
            text => text.split(',').map(|name| name.trim().to_owned()).collect(),
        };
        let is_char = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let is_name = |name: &String| {
            let rest = name.strip_prefix('.').unwrap_or(name);
            name == "*" || (!rest.is_empty() && rest.chars().all(is_char))
        };
        match names.iter().all(is_name) {
            true => Ok(Self(names)),
            false => Err(expected::<Self>()),
        }
    }

    fn show(&self) -> String {
        self.0.join(",")
    }
}

/// The source of a master key, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MaybeMasterKey(pub(crate) Option<KeySource>);

impl SettingValue for MaybeMasterKey {
    const KIND: &'static str = "file:PATH, env:NAME, command:COMMAND, awskms:KEY[?OPTION=VALUE&...], kmip:HOST[:PORT]/KEY?OPTION=VALUE&..., or empty";

    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self(None));
        }
        text.parse().map(|source| Self(Some(source)))
    }

    fn show(&self) -> String {
        self.0
            .as_ref()
            .map_or_else(String::new, ToString::to_string)
    }
}

/// Words between commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Words(pub(crate) Vec<String>);

impl SettingValue for Words {
    const KIND: &'static str = "words, separated by commas";

    fn read(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let words: Vec<String> = text.split(',').map(|word| word.trim().to_owned()).collect();
        match words.iter().any(String::is_empty) {
            true => Err(expected::<Self>()),
            false => Ok(Self(words)),
        }
    }

    fn show(&self) -> String {
        self.0.join(",")
    }
}

/// The rules of user names in certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CertNames(pub(crate) NameRules);

impl SettingValue for CertNames {
    const KIND: &'static str =
        "subject.cn, san.dnsname, san.uri, san.email, or a list of rules in JSON";

    fn read(text: &str) -> Result<Self, String> {
        NameRules::parse(text).map(Self)
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

/// A text that no message or debug text has, and that is overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SecretText(Zeroizing<String>);

impl SecretText {
    pub(crate) fn new(text: &str) -> Self {
        Self(Zeroizing::new(text.to_owned()))
    }
}

impl Deref for SecretText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl SettingValue for SecretText {
    const KIND: &'static str = String::KIND;

    fn read(text: &str) -> Result<Self, String> {
        Ok(Self::new(text))
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// A setting with a few named values.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident, $kind:literal: $($(#[$vdoc:meta])* $variant:ident = $text:literal,)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name {
            $($(#[$vdoc])* $variant,)*
        }

        impl SettingValue for $name {
            const KIND: &'static str = $kind;

            fn read(text: &str) -> Result<Self, String> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    _ => Err(expected::<Self>()),
                }
            }

            fn show(&self) -> String {
                match self {
                    $(Self::$variant => $text,)*
                }
                .to_owned()
            }
        }
    };
}

choice! {
    /// The handling of damage in the middle of a log.
    Recover, "strict or salvage":
    /// Refuses to start, and reports the damage.
    Strict = "strict",
    /// Keeps the readable part, and reports losses.
    Salvage = "salvage",
}

choice! {
    /// The source of the certificate.
    TlsMode, "auto or off":
    /// None, unless files are given.
    Off = "off",
    /// A certificate and its CA, which the server makes in the data directory.
    Auto = "auto",
}

choice! {
    /// The lowest version of TLS.
    TlsVersion, "1.2 or 1.3":
    /// TLS 1.2.
    Tls12 = "1.2",
    /// TLS 1.3.
    Tls13 = "1.3",
}

choice! {
    /// Certificates of clients.
    ClientCertMode, "off, optional or mandatory":
    /// Clients are not asked for one.
    Off = "off",
    /// Clients may have one.
    Optional = "optional",
    /// Clients need one.
    Mandatory = "mandatory",
}

choice! {
    /// The encryption of connections to other nodes of the cluster.
    ClusterEncryption, "off, tls or mutual_tls":
    /// The ports without TLS are used.
    Off = "off",
    /// The ports of TLS are used. Nodes log in with the cluster's secret, by SCRAM or a proof.
    Tls = "tls",
    /// The same, and a node has to show a certificate, too.
    MutualTls = "mutual_tls",
}

choice! {
    /// The lowest level of logged messages.
    LogLevel, "error, warn, info, debug or trace":
    /// Failures and damage.
    Error = "error",
    /// Conditions that need an operator's attention.
    Warn = "warn",
    /// Rare events: start, stop, buckets, users.
    Info = "info",
    /// Details for developers.
    Debug = "debug",
    /// Everything.
    Trace = "trace",
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: SettingValue + PartialEq + fmt::Debug>(text: &str, value: Option<&T>, shown: &str) {
        let read = T::read(text).ok();
        assert_eq!(read.as_ref(), value, "{text}");
        if let Some(value) = read {
            assert_eq!(value.show(), shown);
            assert_eq!(T::read(shown), Ok(value), "what is shown is read again");
        }
    }

    #[test]
    fn setting_values_round_trip() {
        let hosts = |names: &[&str]| Hosts(names.iter().map(|name| (*name).to_owned()).collect());
        check("", Some(&Hosts::default()), "");
        check(
            "a.example, .b,*",
            Some(&hosts(&["a.example", ".b", "*"])),
            "a.example,.b,*",
        );
        for wrong in [",", "a,", ".", "a:80", "http://a", "*.a"] {
            check::<Hosts>(wrong, None, "");
        }
        check(
            "a, b",
            Some(&Words(vec!["a".to_owned(), "b".to_owned()])),
            "a,b",
        );
        check::<Words>("a,", None, "");
        check("subject.cn", Some(&CertNames::default()), "subject.cn");
        check::<CertNames>("subject", None, "");
        check("off", Some(&MaybePort::Off), "off");
        check("0", Some(&MaybePort::At(0)), "0");
        check::<MaybePort>("65536", None, "");
        check::<MaybePort>("", None, "");
        check("salvage", Some(&Recover::Salvage), "salvage");
        check::<Recover>("Salvage", None, "");
        check(
            "balanced",
            Some(&PoolThreads(ThreadCount::Balanced)),
            "balanced",
        );
        check("17", Some(&PoolThreads(ThreadCount::Fixed(17))), "17");
        check::<PoolThreads>("0", None, "");
        check::<PoolThreads>("many", None, "");
    }
}
