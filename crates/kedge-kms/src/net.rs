//! Connections to services, each with a deadline for all that happens on it.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kedge_tls::ClientStream;
use kedge_tls::rustls::ClientConfig;
use zeroize::Zeroizing;

use crate::service::ServiceError;

/// A connection that ends at a deadline.
pub(crate) struct Connection {
    stream: ClientStream,
    deadline: Instant,
    address: String,
}

impl Connection {
    /// Connects to one of the addresses of the host.
    pub(crate) fn open(
        (host, port): (&str, u16),
        tls: Option<&Arc<ClientConfig>>,
        time_max: Duration,
    ) -> Result<Self, ServiceError> {
        let deadline = Instant::now() + time_max;
        let address = match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        let failed = |error: io::Error| {
            ServiceError::unavailable(format!("cannot connect to {address}: {error}"))
        };
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for candidate in (host, port).to_socket_addrs().map_err(failed)? {
            let opened = left(deadline)
                .and_then(|left| TcpStream::connect_timeout(&candidate, left))
                .and_then(|socket| {
                    let left = left(deadline)?;
                    socket.set_nodelay(true)?;
                    socket.set_read_timeout(Some(left))?;
                    socket.set_write_timeout(Some(left))?;
                    ClientStream::open(socket, tls, host)
                });
            match opened {
                Ok(stream) => {
                    return Ok(Self {
                        stream,
                        deadline,
                        address,
                    });
                }
                // The certificate is not trusted, or the server wants another one: no later attempt helps.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return Err(ServiceError::refused(format!(
                        "TLS with {address}: {error}"
                    )));
                }
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, request: &[u8]) -> Result<(), ServiceError> {
        let sent = self.limit().and_then(|()| self.stream.write_all(request));
        let sent = sent.and_then(|()| self.stream.flush());
        sent.map_err(|error| self.broke(&error))
    }

    /// Reads what has arrived, up to `bytes_max` in all. Returns `false` at the end.
    pub(crate) fn receive(
        &mut self,
        into: &mut Zeroizing<Vec<u8>>,
        bytes_max: usize,
    ) -> Result<bool, ServiceError> {
        let mut part = Zeroizing::new([0; 4_096]);
        let read = self
            .limit()
            .and_then(|()| self.stream.read(part.as_mut_slice()));
        let bytes = match read {
            Ok(bytes) => bytes,
            // Servers close without the end of TLS. Lengths show whether the reply is complete.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
            Err(error) => return Err(self.broke(&error)),
        };
        if into.len() + bytes > bytes_max {
            return Err(ServiceError::refused(format!(
                "the reply of {} is longer than {bytes_max} bytes",
                self.address
            )));
        }
        into.extend_from_slice(&part[..bytes]);
        Ok(bytes > 0)
    }

    /// Returns the error of a connection that broke.
    pub(crate) fn broke(&self, error: &io::Error) -> ServiceError {
        let address = &self.address;
        match error.kind() {
            io::ErrorKind::InvalidData => {
                ServiceError::refused(format!("TLS with {address}: {error}"))
            }
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                ServiceError::unavailable(format!("{address} does not answer in time"))
            }
            _ => ServiceError::unavailable(format!("the connection to {address} broke: {error}")),
        }
    }

    fn limit(&self) -> io::Result<()> {
        let left = left(self.deadline)?;
        self.stream.socket().set_read_timeout(Some(left))?;
        self.stream.socket().set_write_timeout(Some(left))
    }
}

/// Returns the time until a deadline, which is not zero.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}
