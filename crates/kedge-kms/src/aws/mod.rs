//! AWS KMS: Encrypt and Decrypt with a symmetric key, over its JSON interface.

mod credentials;
mod environment;
mod metadata;
mod profile;
mod sign;
mod source;
mod web_identity;

use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kedge_encryption::{MasterKeyDetail, Secret};
use kedge_tls::rustls::ClientConfig;
use kedge_tls::{ServiceTrust, service_config};
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::http::{Reply, Request};
use crate::options::TIMEOUT;
use crate::service::{KeyService, ServiceError, Wrapped, secret_of};

use environment::Environment;
use profile::Profile;
use sign::{AmzDate, SigningScope, sign};

pub(crate) use environment::ProcessEnvironment;
pub use source::AwsSource;

/// The context that KMS authenticates with each key, and writes to its own audit log.
const CONTEXT: &str = r#"{"kedge":"keyring"}"#;
const CONTENT_TYPE: &str = "application/x-amz-json-1.1";
/// Largest part of an unknown error in a message, in bytes.
const ERROR_BYTES_MAX: usize = 400;
/// Errors of KMS that may pass.
const PASSING: [&str; 7] = [
    "ThrottlingException",
    "KMSInternalException",
    "DependencyTimeoutException",
    "KeyUnavailableException",
    "LimitExceededException",
    "RequestTimeout",
    "ServiceUnavailable",
];

/// A key in AWS KMS.
pub(crate) struct AwsKms {
    source: AwsSource,
    environment: Box<dyn Environment>,
    /// The ARN of the key, after the first encryption: an alias may move to another key while the server runs.
    arn: OnceLock<String>,
}

impl AwsKms {
    pub(crate) fn new(source: AwsSource, environment: Box<dyn Environment>) -> Self {
        Self {
            source,
            environment,
            arn: OnceLock::new(),
        }
    }

    /// Calls an operation, and returns its result. `document` is JSON.
    fn call(&self, operation: &str, document: &str) -> Result<KmsResult, ServiceError> {
        let environment = &*self.environment;
        let profile = Profile::load(&self.source, environment)?;
        let region = self.source.region(environment, &profile)?;
        let timeout = self.source.timeout();
        let tls = self.tls()?;
        let access = credentials::Access {
            source: &self.source,
            environment,
            profile: &profile,
            region: &region,
            tls: &tls,
        };
        let credentials = access.credentials()?;
        let url = self.source.endpoint(environment, &region)?;
        let target = format!("TrentService.{operation}");
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let date = AmzDate::of(now.unwrap_or_default().as_secs());
        let host = url.host_header();
        let mut headers = vec![
            ("content-type", CONTENT_TYPE),
            ("host", host.as_str()),
            ("x-amz-date", date.as_str()),
        ];
        if let Some(token) = &credentials.token {
            headers.push(("x-amz-security-token", token.as_str()));
        }
        headers.push(("x-amz-target", &target));
        let scope = SigningScope {
            date: &date,
            region: &region,
            service: "kms",
        };
        let authorization = sign(
            &scope,
            &credentials,
            ("POST", "/"),
            &headers,
            document.as_bytes(),
        );
        headers.retain(|(name, _)| *name != "host");
        headers.push(("authorization", &authorization));
        let request = Request {
            method: "POST",
            url: &url,
            headers: &headers,
            body: document.as_bytes(),
        };
        result_of(&request.send(Some(&tls), timeout)?)
    }

    /// Loads the authorities, which may have changed since the last request.
    fn tls(&self) -> Result<Arc<ClientConfig>, ServiceError> {
        let bundle = self.source.ca_path(&*self.environment);
        let pem = match &bundle {
            Some(path) => Some(self.environment.read(path)?),
            None => None,
        };
        let pem = pem.as_ref().map(|pem| pem.as_str());
        let trust = pem.map_or(ServiceTrust::System, ServiceTrust::Pem);
        service_config(&trust).map_err(ServiceError::refused)
    }

    fn key(&self) -> &str {
        self.arn.get().map_or(self.source.key(), String::as_str)
    }
}

impl KeyService for AwsKms {
    fn place(&self) -> String {
        format!("awskms:{}", self.source.key())
    }

    fn known_name(&self) -> Option<String> {
        self.source.key_arn().map(name_of)
    }

    fn wrap(&self, key: &Secret) -> Result<Wrapped, ServiceError> {
        // No value has a character that JSON escapes. The text is not made by a library, which would leave copies of the key.
        let plaintext = Zeroizing::new(STANDARD.encode(**key));
        let document = Zeroizing::new(format!(
            r#"{{"KeyId":"{}","Plaintext":"{}","EncryptionContext":{CONTEXT}}}"#,
            self.key(),
            plaintext.as_str()
        ));
        let result = self.call("Encrypt", &document)?;
        let arn = given(result.key_id, "KeyId")?;
        let bytes = STANDARD.decode(given(result.ciphertext, "CiphertextBlob")?);
        let bytes = bytes.map_err(|_| ServiceError::refused("KMS returned no Base64"))?;
        let name = name_of(self.arn.get_or_init(|| arn.clone()));
        match name == name_of(&arn) {
            true => Ok(Wrapped { bytes, name }),
            false => Err(ServiceError::refused(format!("KMS encrypted with {arn}"))),
        }
    }

    fn unwrap(&self, wrapped: &[u8]) -> Result<Secret, ServiceError> {
        let document = format!(
            r#"{{"KeyId":"{}","CiphertextBlob":"{}","EncryptionContext":{CONTEXT}}}"#,
            self.key(),
            STANDARD.encode(wrapped)
        );
        let result = self.call("Decrypt", &document)?;
        let text = given(result.plaintext, "Plaintext").map(Zeroizing::new)?;
        let bytes = STANDARD.decode(text.as_bytes()).map(Zeroizing::new);
        secret_of(&bytes.map_err(|_| ServiceError::refused("KMS returned no Base64"))?)
    }

    fn kind(&self) -> &'static str {
        "awskms-symmetric-key"
    }

    fn details(&self) -> Vec<(&'static str, MasterKeyDetail)> {
        let mut details = vec![
            ("keyARN", MasterKeyDetail::Text(self.key().to_owned())),
            ("useIMDS", MasterKeyDetail::Flag(self.source.is_imds_only())),
        ];
        let ms = u64::try_from(self.source.timeout().as_millis()).unwrap_or(u64::MAX);
        details.push((TIMEOUT, MasterKeyDetail::Number(ms)));
        details.extend(self.source.texts());
        details
    }
}

/// Returns the name by which keyrings know a key.
fn name_of(arn: &str) -> String {
    format!("awskms:{arn}")
}

/// The fields of a reply that matter.
#[derive(Default, Deserialize)]
struct KmsResult {
    #[serde(rename = "KeyId")]
    key_id: Option<String>,
    #[serde(rename = "CiphertextBlob")]
    ciphertext: Option<String>,
    #[serde(rename = "Plaintext")]
    plaintext: Option<String>,
    #[serde(rename = "__type")]
    kind: Option<String>,
    #[serde(alias = "Message")]
    message: Option<String>,
}

fn given(field: Option<String>, name: &str) -> Result<String, ServiceError> {
    field.ok_or_else(|| ServiceError::refused(format!("KMS returned no {name}")))
}

/// Returns the start of a text for a message.
fn start_of(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(ERROR_BYTES_MAX)]);
    text.trim().escape_debug().to_string()
}

/// Returns the result of a success, or the error.
fn result_of(reply: &Reply) -> Result<KmsResult, ServiceError> {
    let result: KmsResult = serde_json::from_slice(&reply.body).unwrap_or_default();
    if reply.code == 200 {
        return Ok(result);
    }
    let kind = result.kind.as_deref().unwrap_or_default();
    let kind = kind.rsplit('#').next().unwrap_or_default();
    let why = match kind {
        // Something between here and KMS has replied.
        "" => format!("status {}: {}", reply.code, start_of(&reply.body)),
        kind => format!(
            "{kind}: {}",
            result.message.as_deref().unwrap_or("no message")
        ),
    };
    let is_passing = reply.code >= 500 || reply.code == 429 || PASSING.contains(&kind);
    Err(match is_passing {
        true => ServiceError::Unavailable(why),
        false => ServiceError::Refused(why),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_tell_refusals_from_failures_that_pass() {
        let error = |code, body: &str| {
            let body = Zeroizing::new(body.as_bytes().to_vec());
            result_of(&Reply { code, body })
                .map(|_| ())
                .expect_err("an error")
        };
        assert_eq!(
            error(
                400,
                r#"{"__type":"DisabledException","message":"k is disabled"}"#
            ),
            ServiceError::Refused("DisabledException: k is disabled".to_owned())
        );
        assert_eq!(
            error(
                400,
                r#"{"__type":"com.amazonaws.kms#ThrottlingException","Message":"Rate"}"#
            ),
            ServiceError::Unavailable("ThrottlingException: Rate".to_owned())
        );
        assert_eq!(
            error(503, "<html>\r\n"),
            ServiceError::Unavailable("status 503: <html>".to_owned())
        );
        assert_eq!(
            error(403, ""),
            ServiceError::Refused("status 403: ".to_owned())
        );
    }
}
