//! The settings of a key in AWS KMS.

use std::fmt;
use std::time::Duration;

use kedge_encryption::MasterKeyDetail;

use super::environment::Environment;
use super::profile::Profile;
use crate::http::Url;
use crate::options::{Options, TIMEOUT};
use crate::service::ServiceError;

const OPTIONS: [&str; 8] = [
    "region",
    "endpoint",
    "profile",
    "credentialsFile",
    "configFile",
    "useIMDS",
    "caPath",
    TIMEOUT,
];
/// Largest length of the id, the ARN or the alias of a key.
const KEY_BYTES_MAX: usize = 2_048;

/// A key in AWS KMS, and the way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwsSource {
    key: String,
    options: Options,
    timeout: Duration,
    is_imds_only: bool,
}

impl AwsSource {
    /// Reads `KEY[?OPTION=VALUE&...]`. The key is an id, an ARN or an alias.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let (key, options) = text.split_once('?').unwrap_or((text, ""));
        let is_key = |c: char| c.is_ascii_alphanumeric() || ":/_-".contains(c);
        if key.is_empty() || key.len() > KEY_BYTES_MAX || !key.chars().all(is_key) {
            return Err("awskms: needs a key: its id, its ARN, or alias/NAME".to_owned());
        }
        let options = Options::read(options, &OPTIONS)?;
        if let Some(endpoint) = options.text("endpoint") {
            endpoint_url(endpoint)?;
        }
        if let Some(region) = options.text("region") {
            check_region(region)?;
        }
        Ok(Self {
            key: key.to_owned(),
            timeout: options.timeout()?,
            is_imds_only: options.is_on("useIMDS")?,
            options,
        })
    }

    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Returns the ARN of the key, if it is given and not that of an alias.
    pub(super) fn key_arn(&self) -> Option<&str> {
        let is_arn = self.key.starts_with("arn:") && self.key.contains(":key/");
        is_arn.then_some(self.key.as_str())
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns whether the credentials come from the metadata of the instance only.
    pub(super) fn is_imds_only(&self) -> bool {
        self.is_imds_only
    }

    pub(super) fn option(&self, name: &str) -> Option<&str> {
        self.options.text(name)
    }

    /// Returns the file with the authorities of endpoints, if it is not those of the system.
    pub(super) fn ca_path(&self, environment: &dyn Environment) -> Option<String> {
        let given = self.option("caPath").map(str::to_owned);
        given.or_else(|| environment.variable("AWS_CA_BUNDLE"))
    }

    /// Returns the region: that of the option, of the ARN, of the environment, or of the profile.
    pub(super) fn region(
        &self,
        environment: &dyn Environment,
        profile: &Profile,
    ) -> Result<String, ServiceError> {
        let of_arn = || {
            let is_arn = self.key.starts_with("arn:");
            let region = self.key.split(':').nth(3).filter(|_| is_arn)?;
            Some(region.to_owned())
        };
        let region = self
            .option("region")
            .map(str::to_owned)
            .or_else(of_arn)
            .or_else(|| environment.variable("AWS_REGION"))
            .or_else(|| environment.variable("AWS_DEFAULT_REGION"))
            .or_else(|| profile.value("region").map(str::to_owned));
        let region = region.ok_or_else(|| {
            ServiceError::refused(
                "no region: give it as an option, in the ARN, in AWS_REGION or in the profile",
            )
        })?;
        check_region(&region).map_err(ServiceError::Refused)?;
        Ok(region)
    }

    /// Returns the URL of KMS.
    pub(super) fn endpoint(
        &self,
        environment: &dyn Environment,
        region: &str,
    ) -> Result<Url, ServiceError> {
        let given = self.option("endpoint").map(str::to_owned);
        let given = given.or_else(|| environment.endpoint("KMS"));
        let text = given.unwrap_or_else(|| default_endpoint("kms", region));
        endpoint_url(&text).map_err(ServiceError::Refused)
    }

    /// Returns the options that are texts.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&'static str, MasterKeyDetail)> + '_ {
        let texts = OPTIONS
            .into_iter()
            .filter(|name| !["useIMDS", TIMEOUT].contains(name));
        texts.filter_map(|name| {
            let text = self.option(name)?;
            Some((name, MasterKeyDetail::Text(text.to_owned())))
        })
    }
}

impl fmt::Display for AwsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "awskms:{}{}", self.key, self.options.show())
    }
}

/// Returns the URL of a service in a region.
pub(super) fn default_endpoint(service: &str, region: &str) -> String {
    let end = match region.starts_with("cn-") {
        true => ".cn",
        false => "",
    };
    format!("https://{service}.{region}.amazonaws.com{end}")
}

/// Reads the URL of an endpoint. Requests contain keys and credentials, so that only this machine may be asked without TLS.
pub(super) fn endpoint_url(text: &str) -> Result<Url, String> {
    let url = Url::read(text).filter(|url| url.is_tls || url.is_loopback());
    let url = url.filter(|url| url.path == "/");
    url.ok_or_else(|| {
        "the endpoint is https://HOST[:PORT], or http://HOST[:PORT] of this machine".to_owned()
    })
}

fn check_region(region: &str) -> Result<(), String> {
    let is_region = |c: char| c.is_ascii_alphanumeric() || c == '-';
    match !region.is_empty() && region.chars().all(is_region) {
        true => Ok(()),
        false => Err("the region has letters, digits and hyphens only".to_owned()),
    }
}
