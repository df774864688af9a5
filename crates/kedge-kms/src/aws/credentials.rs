//! Credentials, from the first place that has some, in the order of AWS's libraries: environment, shared files, token of a web
//! identity, container, metadata of the instance. They are got for each request, as they may be short-lived.

use std::fmt;
use std::sync::Arc;

use kedge_tls::rustls::ClientConfig;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::environment::Environment;
use super::profile::Profile;
use super::source::AwsSource;
use super::{metadata, web_identity};
use crate::service::ServiceError;

/// The credentials of a caller.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    /// The id of the access key.
    pub(super) id: String,
    /// The secret access key.
    pub(super) secret: Zeroizing<String>,
    /// The token of a session.
    pub(super) token: Option<Zeroizing<String>>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({})", self.id)
    }
}

impl Credentials {
    /// Takes credentials that can be in a header.
    pub(super) fn new(
        id: String,
        secret: Zeroizing<String>,
        token: Option<Zeroizing<String>>,
    ) -> Result<Self, ServiceError> {
        let is_odd = |text: &str| text.is_empty() || text.contains(|c: char| !c.is_ascii_graphic());
        if is_odd(&id) || is_odd(&secret) || token.as_ref().is_some_and(|token| is_odd(token)) {
            return Err(ServiceError::refused("the credentials are malformed"));
        }
        Ok(Self { id, secret, token })
    }

    /// Reads the document of a metadata service.
    pub(super) fn of_document(document: &[u8]) -> Result<Self, ServiceError> {
        let document: MetadataDocument = serde_json::from_slice(document)
            .map_err(|_| ServiceError::refused("the metadata has no credentials"))?;
        let token = document.token.map(Zeroizing::new);
        Self::new(document.id, Zeroizing::new(document.secret), token)
    }
}

/// The credentials in a document of a metadata service.
#[derive(Deserialize)]
struct MetadataDocument {
    #[serde(rename = "AccessKeyId")]
    id: String,
    #[serde(rename = "SecretAccessKey")]
    secret: String,
    #[serde(rename = "Token")]
    token: Option<String>,
}

/// The places of credentials.
pub(super) struct Access<'a> {
    pub(super) source: &'a AwsSource,
    pub(super) environment: &'a dyn Environment,
    pub(super) profile: &'a Profile,
    pub(super) region: &'a str,
    pub(super) tls: &'a Arc<ClientConfig>,
}

impl Access<'_> {
    /// Gets the credentials.
    pub(super) fn credentials(&self) -> Result<Credentials, ServiceError> {
        if self.source.is_imds_only() {
            return metadata::of_instance(self);
        }
        if self.profile.is_given() {
            let found = self.of_profile()?;
            return found.ok_or_else(|| self.incomplete_profile());
        }
        if let Some(found) = self.of_variables()? {
            return Ok(found);
        }
        if let Some(found) = self.of_profile()? {
            return Ok(found);
        }
        if let Some(found) = web_identity::of_token(self)? {
            return Ok(found);
        }
        if let Some(found) = metadata::of_container(self)? {
            return Ok(found);
        }
        if self
            .variable("AWS_EC2_METADATA_DISABLED")
            .is_some_and(|it| it == "true")
        {
            return Err(no_credentials("the metadata of the instance is disabled"));
        }
        metadata::of_instance(self).map_err(|error| match error {
            ServiceError::Unavailable(why) => ServiceError::Unavailable(none_found(&why)),
            ServiceError::Refused(why) => no_credentials(&why),
        })
    }

    pub(super) fn variable(&self, name: &str) -> Option<String> {
        self.environment.variable(name)
    }

    fn of_variables(&self) -> Result<Option<Credentials>, ServiceError> {
        let secret = self.variable("AWS_SECRET_ACCESS_KEY").map(Zeroizing::new);
        let (Some(id), Some(secret)) = (self.variable("AWS_ACCESS_KEY_ID"), secret) else {
            return Ok(None);
        };
        let token = self.variable("AWS_SESSION_TOKEN").map(Zeroizing::new);
        Credentials::new(id, secret, token).map(Some)
    }

    fn of_profile(&self) -> Result<Option<Credentials>, ServiceError> {
        let value = |name: &str| {
            let value = self.profile.value(name);
            value.map(|value| Zeroizing::new(value.to_owned()))
        };
        let id = self.profile.value("aws_access_key_id");
        let (Some(id), Some(secret)) = (id, value("aws_secret_access_key")) else {
            return Ok(None);
        };
        Credentials::new(id.to_owned(), secret, value("aws_session_token")).map(Some)
    }

    fn incomplete_profile(&self) -> ServiceError {
        ServiceError::refused(format!(
            "the profile {} has no aws_access_key_id and aws_secret_access_key; roles, single sign-on and processes are not \
             supported",
            self.profile.name()
        ))
    }
}

fn none_found(why: &str) -> String {
    format!(
        "no credentials in the environment, in the shared files, by a web identity or a container; metadata of the instance: {why}"
    )
}

fn no_credentials(why: &str) -> ServiceError {
    ServiceError::Refused(none_found(why))
}

#[cfg(test)]
mod tests {
    use super::super::environment::testing::TestEnvironment;
    use super::*;
    use kedge_tls::{ServiceTrust, service_config};

    fn credentials(source: &str, environment: &TestEnvironment) -> Result<Credentials, String> {
        let source = AwsSource::read(source).expect("a source");
        let profile = Profile::load(&source, environment).map_err(|error| error.to_string())?;
        let access = Access {
            source: &source,
            environment,
            profile: &profile,
            region: "eu-1",
            tls: &service_config(&ServiceTrust::Unchecked).expect("TLS"),
        };
        access.credentials().map_err(|error| error.to_string())
    }

    fn files() -> TestEnvironment {
        TestEnvironment::default()
            .with("HOME", "/h")
            .with("AWS_EC2_METADATA_DISABLED", "true")
            .with_file(
                "/h/.aws/credentials",
                "[default]\naws_access_key_id=F\naws_secret_access_key=s\n[half]\naws_access_key_id=H\n",
            )
    }

    #[test]
    fn environment_comes_before_files_unless_a_profile_is_given() {
        let variables = files()
            .with("AWS_ACCESS_KEY_ID", "V")
            .with("AWS_SECRET_ACCESS_KEY", "s")
            .with("AWS_SESSION_TOKEN", "t");
        let found = credentials("k", &variables).expect("credentials");
        assert_eq!(
            (
                found.id.as_str(),
                found.token.as_ref().map(|it| it.as_str())
            ),
            ("V", Some("t"))
        );
        assert_eq!(credentials("k", &files()).expect("credentials").id, "F");
        assert_eq!(
            credentials("k?profile=default", &variables)
                .expect("credentials")
                .id,
            "F"
        );
    }

    #[test]
    fn missing_credentials_are_a_clear_error() {
        let nothing = TestEnvironment::default().with("AWS_EC2_METADATA_DISABLED", "true");
        let error = credentials("k", &nothing).expect_err("none");
        assert!(
            error.starts_with("no credentials in the environment"),
            "{error}"
        );
        let error = credentials("k?profile=half", &files()).expect_err("incomplete");
        assert!(
            error.contains("the profile half has no aws_access_key_id"),
            "{error}"
        );
        let odd = nothing
            .with("AWS_ACCESS_KEY_ID", "V\r\nX: y")
            .with("AWS_SECRET_ACCESS_KEY", "hidden");
        let error = credentials("k", &odd).expect_err("a header of its own");
        assert!(
            error.contains("malformed") && !error.contains("hidden"),
            "{error}"
        );
    }

    #[test]
    fn debug_output_has_no_secret() {
        let hidden = || Zeroizing::new("hidden".to_owned());
        let credentials = Credentials::new("A".to_owned(), hidden(), Some(hidden()));
        let credentials = credentials.expect("credentials");
        assert_eq!(format!("{credentials:?}"), "Credentials(A)");
    }
}
