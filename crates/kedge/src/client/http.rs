//! The client of management over HTTP for Kedge's tools.

use std::sync::Arc;

use kedge_node::http_client::{HttpClient as Transport, HttpError, HttpReply};
use kedge_tls::rustls::ClientConfig;
use serde_json::Value;

use super::error::ClientError;

/// The address of the management, and the credentials.
#[derive(Clone, Debug)]
pub struct ManagementClient(Transport);

impl From<HttpError> for ClientError {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::Connect { address, source } => Self::Connect { address, source },
            HttpError::Io { address, source } => Self::Io { address, source },
            HttpError::NotHttp { address } => Self::Unexpected {
                address,
                what: "the reply is not HTTP; is it the management port?".to_owned(),
            },
            other => Self::Unexpected {
                address: String::new(),
                what: other.to_string(),
            },
        }
    }
}

impl ManagementClient {
    /// Creates the client without a connection. `host` is a name or an address, IPv6 without brackets.
    #[must_use]
    pub fn new(host: &str, port: u16, user: &str, password: &str) -> Self {
        Self(Transport::new(host, port, user, password))
    }

    /// Returns the client of a port that speaks HTTPS.
    #[must_use]
    pub fn over_tls(self, config: Arc<ClientConfig>) -> Self {
        Self(self.0.over_tls(config))
    }

    /// Returns the client that sends no password, as the certificate of its TLS logs in.
    #[must_use]
    pub fn by_certificate(self) -> Self {
        Self(self.0.by_certificate())
    }

    /// Returns the client without a timeout for replies.
    #[must_use]
    pub fn patient(self) -> Self {
        Self(self.0.patient())
    }

    /// Sends one request; a `form` with fields becomes its body.
    ///
    /// # Errors
    /// Transport errors; any status code is success.
    pub fn send(
        &self,
        method: &str,
        path: &str,
        form: &[(&str, &str)],
    ) -> Result<HttpReply, ClientError> {
        const FORM: &str = "application/x-www-form-urlencoded";
        let body = encode_form(form);
        Ok(self.0.send(method, path, FORM, body.as_bytes())?)
    }

    /// Sends one request that must succeed.
    ///
    /// # Errors
    /// [`ClientError::Http`] for a status code that is not 2xx, [`ClientError::Login`] for 401,
    /// transport errors.
    pub fn expect(
        &self,
        method: &str,
        path: &str,
        form: &[(&str, &str)],
    ) -> Result<HttpReply, ClientError> {
        let reply = self.send(method, path, form)?;
        self.succeeded(reply)
    }

    /// Returns the reply if its status code is success.
    ///
    /// # Errors
    /// [`ClientError::Http`] for a status code that is not 2xx, [`ClientError::Login`] for 401.
    pub fn succeeded(&self, reply: HttpReply) -> Result<HttpReply, ClientError> {
        match reply.code {
            _ if reply.is_success() => Ok(reply),
            401 => Err(ClientError::Login {
                user: self.0.user().to_owned(),
            }),
            code => Err(ClientError::Http {
                code,
                words: words(&reply.body),
            }),
        }
    }

    /// Gets a JSON document.
    ///
    /// # Errors
    /// The same as for [`ManagementClient::expect`]; [`ClientError::Unexpected`] when it is no JSON.
    pub fn json(&self, path: &str) -> Result<Value, ClientError> {
        let reply = self.expect("GET", path, &[])?;
        serde_json::from_slice(&reply.body).map_err(|error| ClientError::Unexpected {
            address: self.0.address(),
            what: format!("the reply to {path} is no JSON: {error}"),
        })
    }
}

/// Returns the message in an error's body, for a person.
fn words(body: &[u8]) -> String {
    let text = || String::from_utf8_lossy(body).trim().to_owned();
    let Ok(Value::Object(object)) = serde_json::from_slice(body) else {
        return text();
    };
    let fields = match object.get("errors") {
        Some(Value::Object(fields)) => fields,
        _ => &object,
    };
    let said: Vec<String> = fields
        .iter()
        .map(|(name, value)| {
            let value = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            if name == "_" || name == "message" {
                value
            } else {
                format!("{name}: {value}")
            }
        })
        .collect();
    if said.is_empty() {
        text()
    } else {
        said.join("; ")
    }
}

/// Encodes a form as `application/x-www-form-urlencoded`.
fn encode_form(form: &[(&str, &str)]) -> String {
    let fields: Vec<String> = form
        .iter()
        .map(|(name, value)| format!("{}={}", encode(name), encode(value)))
        .collect();
    fields.join("&")
}

/// Percent-encodes all characters but the unreserved ones of RFC 3986 section 2.3.
#[must_use]
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_error_bodies_become_messages() {
        for (body, expected) in [
            (
                r#"{"errors":{"name":"taken","ramQuotaMB":"low"}}"#,
                "name: taken; ramQuotaMB: low",
            ),
            (
                r#"{"_":"Flush is disabled for the bucket"}"#,
                "Flush is disabled for the bucket",
            ),
            (
                r#"{"message":"Forbidden","permissions":["x"]}"#,
                "Forbidden; permissions: [\"x\"]",
            ),
            (
                "Requested resource not found.\n",
                "Requested resource not found.",
            ),
            ("{}", "{}"),
        ] {
            assert_eq!(words(body.as_bytes()), expected);
        }
    }

    #[test]
    fn forms_are_encoded() {
        assert_eq!(
            encode_form(&[("a b", "ü&=%"), ("c", "x-y_z.~")]),
            "a%20b=%C3%BC%26%3D%25&c=x-y_z.~"
        );
        assert_eq!(encode_form(&[]), "");
    }
}
