//! The client side of management over HTTP, for nodes of a cluster and Kedge's tools.
//!
//! Blocking, one request per connection, every wait bounded.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kedge_tls::ClientStream;
use kedge_tls::rustls::ClientConfig;
use zeroize::Zeroizing;

/// Timeout of a reply, unless another one is asked for.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest reply that is read, in bytes.
const REPLY_BYTES_MAX: u64 = 64 << 20;

/// The reason why there is no reply.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// Nothing answers at the address.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// `HOST:PORT` as it was given.
        address: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The connection broke, or the reply took too long.
    #[error("connection to {address} broke: {source}")]
    Io {
        /// `HOST:PORT` as it was given.
        address: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The reply is not HTTP.
    #[error("{address} sent no HTTP reply; is it the management port?")]
    NotHttp {
        /// `HOST:PORT` as it was given.
        address: String,
    },
}

/// The address of the management, and the credentials.
#[derive(Clone)]
pub struct HttpClient {
    host: String,
    port: u16,
    user: String,
    /// The password; `None`: the certificate of TLS logs in.
    password: Option<Zeroizing<String>>,
    /// The timeout of connecting.
    connect: Duration,
    /// For how long a reply is waited for; `None`: for ever.
    patience: Option<Duration>,
    /// TLS, if the port speaks HTTPS.
    tls: Option<Arc<ClientConfig>>,
}

impl std::fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpClient")
            .field("address", &self.address())
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpReply {
    /// Status code.
    pub code: u16,
    /// Body.
    pub body: Vec<u8>,
}

impl HttpReply {
    /// Returns whether the status code is 2xx.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

impl HttpClient {
    /// Creates the client without a connection. `host` is a name or an address, IPv6 without brackets.
    #[must_use]
    pub fn new(host: &str, port: u16, user: &str, password: &str) -> Self {
        Self {
            host: host.to_owned(),
            port,
            user: user.to_owned(),
            password: Some(password.to_owned().into()),
            connect: TIMEOUT,
            patience: Some(TIMEOUT),
            tls: None,
        }
    }

    /// Returns the client of a port that speaks HTTPS.
    #[must_use]
    pub fn over_tls(self, config: Arc<ClientConfig>) -> Self {
        Self {
            tls: Some(config),
            ..self
        }
    }

    /// Returns the client that sends no password, as the certificate of its TLS logs in.
    #[must_use]
    pub fn by_certificate(self) -> Self {
        Self {
            password: None,
            ..self
        }
    }

    /// Returns the client without a timeout for replies.
    #[must_use]
    pub fn patient(self) -> Self {
        Self {
            patience: None,
            ..self
        }
    }

    /// Returns the client with this timeout for connecting and for each wait for the reply.
    #[must_use]
    pub fn within(&self, time: Duration) -> Self {
        Self {
            connect: time,
            patience: Some(time),
            ..self.clone()
        }
    }

    /// Returns the user.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Returns `HOST:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Sends one request. Any status code of the reply is success.
    ///
    /// # Errors
    /// [`HttpError`].
    pub fn send(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &[u8],
    ) -> Result<HttpReply, HttpError> {
        let address = self.address();
        let broke = |source| HttpError::Io {
            address: address.clone(),
            source,
        };
        let mut stream = self.connect()?;
        let login = self.authorization();
        // After HTTP/1.0 the server closes, and the body ends with the connection.
        let head = Zeroizing::new(format!(
            "{method} {path} HTTP/1.0\r\nHost: {address}\r\n{}\
             Content-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
            login.as_str(),
            body.len(),
        ));
        stream.write_all(head.as_bytes()).map_err(broke)?;
        // A server that refuses a request before reading all of it may have replied and closed by now.
        let sent = stream.write_all(body).and_then(|()| stream.flush());
        let mut reply = Vec::new();
        match stream.take(REPLY_BYTES_MAX).read_to_end(&mut reply) {
            Err(source) if reply.is_empty() => return Err(broke(source)),
            Ok(_) | Err(_) => {}
        }
        if let Err(source) = sent
            && reply.is_empty()
        {
            return Err(broke(source));
        }
        parse(&reply).ok_or(HttpError::NotHttp { address })
    }

    /// Returns the header of the login.
    fn authorization(&self) -> Zeroizing<String> {
        let Some(password) = &self.password else {
            return Zeroizing::default();
        };
        let login = Zeroizing::new(format!("{}:{}", self.user, password.as_str()));
        let login = Zeroizing::new(STANDARD.encode(login.as_bytes()));
        Zeroizing::new(format!("Authorization: Basic {}\r\n", login.as_str()))
    }

    fn connect(&self) -> Result<ClientStream, HttpError> {
        let failed = |source| HttpError::Connect {
            address: self.address(),
            source,
        };
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for candidate in (self.host.as_str(), self.port)
            .to_socket_addrs()
            .map_err(failed)?
        {
            match TcpStream::connect_timeout(&candidate, self.connect) {
                Ok(stream) => {
                    stream.set_nodelay(true).map_err(failed)?;
                    stream.set_read_timeout(self.patience).map_err(failed)?;
                    stream
                        .set_write_timeout(Some(self.patience.unwrap_or(TIMEOUT)))
                        .map_err(failed)?;
                    let opened = ClientStream::open(stream, self.tls.as_ref(), &self.host);
                    return opened.map_err(failed);
                }
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }
}

/// Returns status code and body of a complete reply.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_replies_are_parsed() {
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
}
