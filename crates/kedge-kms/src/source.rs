//! The sources of a master key, as the settings name them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use kedge_encryption::{MasterKey, MasterKeyError, MasterKeySource};

use crate::aws::{AwsKms, AwsSource, ProcessEnvironment};
use crate::kmip::{self, KmipSource};
use crate::remote::{Patience, RemoteMasterKey};

/// The forms of a source.
const FORMS: &str = "file:PATH, env:NAME, command:COMMAND, awskms:KEY[?OPTION=VALUE&...] or kmip:HOST[:PORT]/KEY[?OPTION=VALUE&...]";

/// The use of a master key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRole {
    /// It wraps keyrings.
    Current,
    /// It only unwraps, as the one before does for keyrings that are not yet wrapped by the current one.
    Previous,
}

/// The place that a master key comes from, or stays in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeySource {
    /// A file, the environment or a command.
    Local(MasterKeySource),
    /// AWS KMS, which encrypts with a key that it keeps.
    Aws(AwsSource),
    /// A server that speaks KMIP.
    Kmip(KmipSource),
}

impl FromStr for KeySource {
    type Err = String;

    /// Reads a source, such as `awskms:alias/kedge?region=eu-west-1`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(':').unwrap_or_default();
        match kind {
            "awskms" => AwsSource::read(rest).map(Self::Aws),
            "kmip" => KmipSource::read(rest).map(Self::Kmip),
            _ => match text.parse() {
                Ok(local) => Ok(Self::Local(local)),
                Err(_) => Err(format!("expected {FORMS}")),
            },
        }
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(local) => local.fmt(f),
            Self::Aws(aws) => aws.fmt(f),
            Self::Kmip(kmip) => kmip.fmt(f),
        }
    }
}

impl KeySource {
    /// Gets the key, or checks that its service encrypts with it. A service that does not answer is asked again for `time_max`.
    ///
    /// # Errors
    /// [`MasterKeyError`].
    pub fn open(
        &self,
        role: KeyRole,
        time_max: Duration,
    ) -> Result<Arc<dyn MasterKey>, MasterKeyError> {
        let patience = Patience::of(time_max);
        let key: Arc<dyn MasterKey> = match self {
            Self::Local(local) => Arc::new(local.load()?),
            Self::Aws(aws) => {
                let service = Box::new(AwsKms::new(aws.clone(), Box::new(ProcessEnvironment)));
                Arc::new(RemoteMasterKey::connect(service, role, patience)?)
            }
            Self::Kmip(source) if source.is_get() => Arc::new(kmip::get(source, patience)?),
            Self::Kmip(source) => {
                let service = Box::new(kmip::KmipServer::new(source.clone()));
                Arc::new(RemoteMasterKey::connect(service, role, patience)?)
            }
        };
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_read_and_shown() {
        for text in [
            "file:/etc/key",
            "env:KEDGE_KEY",
            "command:vault read -field=key x:y",
            "awskms:alias/kedge?region=eu-west-1",
            "awskms:arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab",
            "kmip:kms.example.org:5696/17?certPath=%2Fa&keyPath=%2Fb",
            "kmip:[::1]:9000/17?certPath=%2Fa&keyPath=%2Fb&encryptionApproach=useGet",
        ] {
            let source: KeySource = text.parse().expect(text);
            assert_eq!(source.to_string(), text);
        }
    }

    #[test]
    fn sources_that_cannot_work_are_refused() {
        for (text, why) in [
            ("", "expected file:PATH"),
            ("vault:x", "awskms:KEY"),
            ("awskms:", "needs a key"),
            ("awskms:a b", "needs a key"),
            ("awskms:k?zone=1", "unknown option zone"),
            ("awskms:k?useIMDS=1", "true or false"),
            ("awskms:k?endpoint=http://kms.example.org", "https"),
            ("awskms:k?endpoint=x", "https"),
            ("awskms:k?region=eu/x", "region"),
            ("kmip:h", "kmip:HOST"),
            ("kmip:/1?certPath=a&keyPath=b", "kmip:HOST"),
            ("kmip:h/1", "certPath"),
            (
                "kmip:h/1?certPath=a&keyPath=b&encryptionApproach=x",
                "useEncryptDecrypt",
            ),
            (
                "kmip:h/1?certPath=a&keyPath=b&reqTimeoutMs=x",
                "reqTimeoutMs",
            ),
        ] {
            let error = text.parse::<KeySource>().expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
