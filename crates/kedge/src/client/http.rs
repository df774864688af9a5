//! Management over HTTP, as much of it as our tools need.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::error::ClientError;

const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest reply that is read, in bytes.
const REPLY_BYTES_MAX: u64 = 64 << 20;

/// Where management is, and who asks.
#[derive(Clone, Debug)]
pub struct HttpClient {
    host: String,
    port: u16,
    user: String,
    password: String,
    /// For how long a reply is waited for; `None`: for ever.
    patience: Option<Duration>,
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpReply {
    /// Status code.
    pub code: u16,
    /// Body.
    pub body: Vec<u8>,
}

impl HttpClient {
    /// Nothing is sent yet. `host` is a name or an address, IPv6 without brackets.
    #[must_use]
    pub fn new(host: &str, port: u16, user: &str, password: &str) -> Self {
        Self {
            host: host.to_owned(),
            port,
            user: user.to_owned(),
            password: password.to_owned(),
            patience: Some(TIMEOUT),
        }
    }

    /// The same, but it waits for replies as long as they take.
    #[must_use]
    pub fn patient(self) -> Self {
        Self {
            patience: None,
            ..self
        }
    }

    /// Sends one request; `form` becomes the body of one that has any fields.
    ///
    /// # Errors
    /// Transport errors; the status code, whatever it is, is none.
    pub fn send(
        &self,
        method: &str,
        path: &str,
        form: &[(&str, &str)],
    ) -> Result<HttpReply, ClientError> {
        let address = self.address();
        let broke = |source| ClientError::Io {
            address: address.clone(),
            source,
        };
        let mut stream = self.connect()?;
        let body = encode_form(form);
        let login = STANDARD.encode(format!("{}:{}", self.user, self.password));
        // After HTTP/1.0 the server closes, and the body ends with the connection.
        let head = format!(
            "{method} {path} HTTP/1.0\r\nHost: {address}\r\nAuthorization: Basic {login}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n",
            body.len(),
        );
        stream.write_all(head.as_bytes()).map_err(broke)?;
        stream.write_all(body.as_bytes()).map_err(broke)?;
        let mut reply = Vec::new();
        match stream.take(REPLY_BYTES_MAX).read_to_end(&mut reply) {
            Err(source) if reply.is_empty() => return Err(broke(source)),
            // A server that refuses a request without reading all of it may reset the connection behind its reply.
            Ok(_) | Err(_) => {}
        }
        parse(&reply).ok_or_else(|| ClientError::Unexpected {
            address: self.address(),
            what: "no reply of HTTP; is it the management port?".to_owned(),
        })
    }

    /// Sends one request that has to succeed.
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
        match reply.code {
            200..=299 => Ok(reply),
            401 => Err(ClientError::Login {
                user: self.user.clone(),
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
    /// As [`HttpClient::expect`]; [`ClientError::Unexpected`] when it is no JSON.
    pub fn json(&self, path: &str) -> Result<Value, ClientError> {
        let reply = self.expect("GET", path, &[])?;
        serde_json::from_slice(&reply.body).map_err(|error| ClientError::Unexpected {
            address: self.address(),
            what: format!("no JSON at {path}: {error}"),
        })
    }

    fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    fn connect(&self) -> Result<TcpStream, ClientError> {
        let failed = |source| ClientError::Connect {
            address: self.address(),
            source,
        };
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for candidate in (self.host.as_str(), self.port)
            .to_socket_addrs()
            .map_err(failed)?
        {
            match TcpStream::connect_timeout(&candidate, TIMEOUT) {
                Ok(stream) => {
                    stream.set_read_timeout(self.patience).map_err(failed)?;
                    stream.set_write_timeout(Some(TIMEOUT)).map_err(failed)?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }
}

/// Status code and body of a reply that is all there.
fn parse(reply: &[u8]) -> Option<HttpReply> {
    let end = reply.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&reply[..end]).ok()?;
    let mut status = head.lines().next()?.split(' ');
    if !status.next()?.starts_with("HTTP/1.") {
        return None;
    }
    Some(HttpReply {
        code: status.next()?.parse().ok()?,
        body: reply[end + 4..].to_vec(),
    })
}

/// What an error's body says, for a person.
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

/// `application/x-www-form-urlencoded`.
fn encode_form(form: &[(&str, &str)]) -> String {
    let fields: Vec<String> = form
        .iter()
        .map(|(name, value)| format!("{}={}", encode(name), encode(value)))
        .collect();
    fields.join("&")
}

/// Percent-encodes all but the characters that RFC 3986 section 2.3 calls unreserved.
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
    fn replies_are_parsed() {
        let ok = parse(b"HTTP/1.0 202 Accepted\r\nX: y\r\n\r\nbody\r\n\r\n").expect("a reply");
        assert_eq!((ok.code, ok.body.as_slice()), (202, &b"body\r\n\r\n"[..]));
        for broken in [
            &b""[..],
            b"HTTP/1.1 200",
            b"SSH-2.0-x\r\n\r\n",
            b"HTTP/1.1 abc\r\n\r\n",
        ] {
            assert_eq!(parse(broken), None);
        }
    }

    #[test]
    fn errors_are_read_to_people() {
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
