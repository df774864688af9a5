//! The client side of management over HTTP, for nodes of a cluster and Kedge's tools.
//!
//! Blocking, one request per connection, every wait bounded. People and tools send a password with each request, nodes a
//! proof of the cluster's secret ([`NodeAccess`]).

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kedge_auth::{NONCE_HEADER, PROOF_SCHEME, ProvenRequest};
use kedge_cluster::CLUSTER_USER;
use kedge_sync::{RankedMutex, ranks::NextNonce};
use kedge_tls::ClientStream;
use kedge_tls::rustls::ClientConfig;
use zeroize::Zeroizing;

use crate::node_access::NodeAccess;

/// Timeout of a reply, unless another one is asked for.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The status of a refused login.
const UNAUTHORIZED: u16 = 401;
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
    login: HttpLogin,
    /// The timeout of connecting.
    connect: Duration,
    /// For how long a reply is waited for; `None`: for ever.
    patience: Option<Duration>,
    /// TLS, if the port speaks HTTPS.
    tls: Option<Arc<ClientConfig>>,
}

/// The login of the requests.
#[derive(Clone)]
enum HttpLogin {
    Password {
        user: String,
        password: Zeroizing<String>,
    },
    /// The certificate of TLS logs in.
    Certificate {
        user: String,
    },
    Node(Arc<NodeRequests>),
}

/// The requests of this node to another one.
struct NodeRequests {
    access: Arc<NodeAccess>,
    /// The name of the other node.
    node: String,
    /// The nonce of the next request, if the last response had one.
    nonce: RankedMutex<NextNonce, Option<String>>,
}

impl std::fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpClient")
            .field("address", &self.address())
            .field("user", &self.user())
            .finish_non_exhaustive()
    }
}

/// The header `Authorization` with its end of line; empty without a login.
type Authorization = Zeroizing<String>;

/// Returns the header of Basic authentication.
fn basic(user: &str, password: &str) -> Authorization {
    let login = Zeroizing::new(format!("{user}:{password}"));
    let login = Zeroizing::new(STANDARD.encode(login.as_bytes()));
    Zeroizing::new(format!("Authorization: Basic {}\r\n", login.as_str()))
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
            login: HttpLogin::Password {
                user: user.to_owned(),
                password: password.to_owned().into(),
            },
            connect: TIMEOUT,
            patience: Some(TIMEOUT),
            tls: None,
        }
    }

    /// Creates the client of another node.
    pub(crate) fn of_node(access: Arc<NodeAccess>, node: &str, host: &str, port: u16) -> Self {
        let requests = NodeRequests {
            access,
            node: node.to_owned(),
            nonce: RankedMutex::default(),
        };
        Self {
            login: HttpLogin::Node(Arc::new(requests)),
            ..Self::new(host, port, "", "")
        }
    }

    /// Creates the client of another server than Kedge, which sends no credentials.
    #[must_use]
    pub fn anonymous(host: &str, port: u16) -> Self {
        Self {
            // Without a certificate, as TLS has none of its own.
            login: HttpLogin::Certificate {
                user: String::new(),
            },
            ..Self::new(host, port, "", "")
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
        let user = self.user().to_owned();
        Self {
            login: HttpLogin::Certificate { user },
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
        match &self.login {
            HttpLogin::Password { user, .. } | HttpLogin::Certificate { user } => user,
            HttpLogin::Node(_) => CLUSTER_USER,
        }
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
        let request = ProvenRequest {
            method,
            path,
            content_type,
        };
        match &self.login {
            HttpLogin::Password { user, password } => {
                let login = basic(user, password);
                Ok(self.exchange(&request, body, &login)?.0)
            }
            HttpLogin::Certificate { .. } => {
                Ok(self.exchange(&request, body, &Authorization::default())?.0)
            }
            HttpLogin::Node(node) if node.access.proves() => self.send_proven(node, &request, body),
            // The other nodes may have a release that checks no proofs.
            HttpLogin::Node(node) => {
                let login = basic(CLUSTER_USER, node.access.secret());
                Ok(self.exchange(&request, body, &login)?.0)
            }
        }
    }

    /// Sends a request with a proof of the secret, by the nonce of the last response or by a new one.
    fn send_proven(
        &self,
        node: &NodeRequests,
        request: &ProvenRequest<'_>,
        body: &[u8],
    ) -> Result<HttpReply, HttpError> {
        let kept = node.nonce.lock().take();
        if let Some(nonce) = kept {
            let (reply, next) = self.prove(node, request, body, &nonce)?;
            // A refusal with a nonce: the kept one is too old, or the node has restarted.
            match next {
                Some(next) if reply.code == UNAUTHORIZED => {
                    return Ok(self.prove(node, request, body, &next)?.0);
                }
                _ => return Ok(reply),
            }
        }
        let asks = Zeroizing::new(format!("Authorization: {PROOF_SCHEME}\r\n"));
        let (refused, nonce) = self.exchange(request, &[], &asks)?;
        match nonce {
            Some(nonce) => Ok(self.prove(node, request, body, &nonce)?.0),
            None => Ok(refused),
        }
    }

    /// Sends a request with a proof by this nonce, and keeps the next one.
    fn prove(
        &self,
        node: &NodeRequests,
        request: &ProvenRequest<'_>,
        body: &[u8],
        nonce: &str,
    ) -> Result<(HttpReply, Option<String>), HttpError> {
        let secret = node.access.secret();
        let proof = request.authorization(secret, &node.node, nonce, body);
        let proof = Zeroizing::new(format!("Authorization: {proof}\r\n"));
        let (reply, next) = self.exchange(request, body, &proof)?;
        if reply.code != UNAUTHORIZED {
            *node.nonce.lock() = next.clone();
        }
        Ok((reply, next))
    }

    /// Sends one request on a connection of its own. Returns the reply, and the nonce in it.
    fn exchange(
        &self,
        request: &ProvenRequest<'_>,
        body: &[u8],
        authorization: &Authorization,
    ) -> Result<(HttpReply, Option<String>), HttpError> {
        let address = self.address();
        let broke = |source| HttpError::Io {
            address: address.clone(),
            source,
        };
        let mut stream = self.connect()?;
        let (method, path, content_type) = (request.method, request.path, request.content_type);
        // After HTTP/1.0 the server closes, and the body ends with the connection.
        let head = Zeroizing::new(format!(
            "{method} {path} HTTP/1.0\r\nHost: {address}\r\n{}\
             Content-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
            authorization.as_str(),
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

    fn connect(&self) -> Result<ClientStream, HttpError> {
        let failed = |source| HttpError::Connect {
            address: self.address(),
            source,
        };
        if self.port == 0 {
            let why = "it has no such port: all nodes of a cluster need the same cluster_encryption, or both ports";
            return Err(failed(io::Error::new(io::ErrorKind::AddrNotAvailable, why)));
        }
        let tls = match &self.login {
            HttpLogin::Password { .. } | HttpLogin::Certificate { .. } => self.tls.clone(),
            HttpLogin::Node(node) => node.access.tls_config(),
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
                    let opened = ClientStream::open(stream, tls.as_ref(), &self.host);
                    return opened.map_err(failed);
                }
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }
}

/// Returns status code and body of a complete reply, and the nonce in its headers.
fn parse(reply: &[u8]) -> Option<(HttpReply, Option<String>)> {
    let end = reply.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&reply[..end]).ok()?;
    let mut lines = head.lines();
    let mut status = lines.next()?.split(' ');
    if !status.next()?.starts_with("HTTP/1.") {
        return None;
    }
    let code = status.next()?.parse().ok()?;
    let mut headers = lines.filter_map(|line| line.split_once(':'));
    let nonce = headers.find(|(name, _)| name.eq_ignore_ascii_case(NONCE_HEADER));
    let reply = HttpReply {
        code,
        body: reply[end + 4..].to_vec(),
    };
    Some((reply, nonce.map(|(_, nonce)| nonce.trim().to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_replies_are_parsed() {
        let (ok, nonce) =
            parse(b"HTTP/1.0 202 Accepted\r\nX: y\r\n\r\nbody\r\n\r\n").expect("a reply");
        assert_eq!(nonce, None);
        assert_eq!((ok.code, ok.body.as_slice()), (202, &b"body\r\n\r\n"[..]));
        let (_, nonce) =
            parse(b"HTTP/1.1 401 No\r\nA: b\r\nKedge-Nonce: 00ff\r\n\r\n").expect("a reply");
        assert_eq!(nonce.as_deref(), Some("00ff"));
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
