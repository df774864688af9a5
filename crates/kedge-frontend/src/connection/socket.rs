//! A client's socket, plain or with TLS, and its readiness.
//!
//! The poll is edge-triggered, so the readiness is kept here: the socket is readable until a receive came back short, and
//! writable until a send did. With TLS, it is also readable while the session has received bytes, and a client that is
//! slow to read leaves records in the session: see [`ClientSocket::has_unsent`].

use std::io::{self, ErrorKind, Read};
use std::sync::Arc;

use kedge_node::output::Output;
use kedge_tls::rustls::{self, ServerConfig};
use mio::net::TcpStream;

use super::tls::{PlainBytes, SocketRead, TLS_HELD_BYTES_MAX, TlsBuffers, TlsSession};
use crate::metrics::ThreadMetrics;
use crate::request_memory::FREE_BYTES;

/// The resources of a thread that a socket uses in a turn.
pub(super) struct SocketTurn<'t> {
    pub(super) metrics: &'t ThreadMetrics,
    pub(super) tls: &'t mut TlsBuffers,
    /// Returns true at the end of the connection's time slice.
    pub(super) is_over: &'t dyn Fn() -> bool,
}

/// A client's socket.
pub(crate) struct ClientSocket {
    stream: TcpStream,
    tls: Option<Box<TlsSession>>,
    readable: bool,
    writable: bool,
    /// The poll has reported the end of the stream, which is received behind the last bytes.
    end_reported: bool,
    /// The end of the stream was received.
    at_end: bool,
}

impl ClientSocket {
    /// A plain socket, which may be ready already.
    pub(crate) fn plain(stream: TcpStream) -> Self {
        Self::new(stream, None)
    }

    /// A socket with TLS.
    ///
    /// # Errors
    /// The error of rustls about the configuration.
    pub(crate) fn with_tls(
        stream: TcpStream,
        config: Arc<ServerConfig>,
    ) -> Result<Self, rustls::Error> {
        let session = TlsSession::new(config)?;
        Ok(Self::new(stream, Some(Box::new(session))))
    }

    fn new(stream: TcpStream, tls: Option<Box<TlsSession>>) -> Self {
        Self {
            stream,
            tls,
            readable: true,
            writable: true,
            end_reported: false,
            at_end: false,
        }
    }

    pub(super) fn stream_mut(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// The TLS session, if it has one.
    pub(super) fn tls(&self) -> Option<&TlsSession> {
        self.tls.as_deref()
    }

    /// Returns true once, when the handshake of a TLS session is complete.
    pub(super) fn take_handshake(&mut self) -> bool {
        self.tls.as_mut().is_some_and(|tls| tls.take_completed())
    }

    /// The poll has reported that the socket is ready.
    pub(super) fn on_ready(&mut self, readable: bool, writable: bool, at_end: bool) {
        self.readable |= readable || at_end;
        self.writable |= writable;
        self.end_reported |= at_end;
    }

    /// Returns true if a receive may return bytes.
    pub(super) fn is_readable(&self) -> bool {
        let has_received = self.tls().is_some_and(TlsSession::has_received);
        (self.readable || has_received) && !self.at_end
    }

    pub(super) fn is_writable(&self) -> bool {
        self.writable
    }

    /// Returns true if the client sends no more.
    pub(super) fn is_at_end(&self) -> bool {
        self.at_end
    }

    /// Returns true if encrypted output waits for the socket.
    pub(super) fn has_unsent(&self) -> bool {
        self.tls().is_some_and(TlsSession::has_unsent)
    }

    /// The number of received bytes that the session keeps.
    pub(super) fn held_bytes(&self) -> usize {
        self.tls().map_or(0, TlsSession::held_bytes)
    }

    /// The memory that a request of `need` bytes takes, with the records in which it comes.
    pub(super) fn memory_need(&self, need: usize) -> usize {
        match self.tls() {
            Some(tls) if need + tls.held_bytes() > FREE_BYTES => need + TLS_HELD_BYTES_MAX,
            _ => need,
        }
    }

    /// Receives once, and returns the number of bytes: 0 at the end of the stream, or if there are none yet.
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        turn: &mut SocketTurn<'_>,
    ) -> io::Result<usize> {
        if self.tls.is_some() {
            return self.receive_tls(&mut PlainBytes::Shared { buffer, filled: 0 }, turn);
        }
        match self.stream.read(buffer) {
            Ok(0) => {
                self.at_end = true;
                Ok(0)
            }
            Ok(count) => {
                turn.metrics.read(count);
                // A short read has emptied the socket, and the poll reports new bytes. It reports the end only once.
                self.readable = count == buffer.len() || self.end_reported;
                Ok(count)
            }
            Err(error) => self.not_ready(error),
        }
    }

    /// Appends up to `max` bytes to a buffer, and returns their number.
    pub(super) fn receive_into(
        &mut self,
        buffer: &mut Vec<u8>,
        max: usize,
        turn: &mut SocketTurn<'_>,
    ) -> io::Result<usize> {
        if self.tls.is_some() {
            return self.receive_tls(&mut PlainBytes::Owned { buffer, room: max }, turn);
        }
        let before = buffer.len();
        let result = (&mut self.stream).take(max as u64).read_to_end(buffer);
        let count = buffer.len() - before;
        turn.metrics.read(count);
        match result {
            Ok(_) => {
                self.at_end = count < max;
                Ok(count)
            }
            Err(error) => self.not_ready(error).map(|_| count),
        }
    }

    /// As [`Self::receive`], with TLS. The handshake makes progress here, too.
    fn receive_tls(
        &mut self,
        plain: &mut PlainBytes<'_>,
        turn: &mut SocketTurn<'_>,
    ) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return Ok(0);
        };
        let room = plain.room();
        let stream = match self.readable {
            true => Some(&mut self.stream as &mut dyn Read),
            false => None,
        };
        let received = tls.receive(stream, plain, turn.tls, turn.is_over);
        // Handshake messages are sent at once, and the alert about an error, too.
        let flushed = match self.writable {
            true => tls.flush(&mut self.stream),
            false => Ok((0, false)),
        };
        let received = received?;
        let (sent, is_writable) = flushed?;
        turn.metrics.wrote(sent);
        self.writable = is_writable;
        match received {
            SocketRead::Untried => {}
            SocketRead::Bytes { count, is_short } => {
                turn.metrics.read(count);
                self.readable = !is_short || self.end_reported;
            }
            SocketRead::Blocked | SocketRead::End => self.readable = false,
        }
        self.at_end = tls.is_at_end();
        Ok(room - plain.room())
    }

    fn not_ready(&mut self, error: io::Error) -> io::Result<usize> {
        match error.kind() {
            ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(0)
            }
            // The socket is still readable, so the caller tries again.
            ErrorKind::Interrupted => Ok(0),
            _ => Err(error),
        }
    }

    /// Sends output while the socket takes it, up to `max` bytes and what one call sends beyond. Returns the number of bytes.
    pub(super) fn send(
        &mut self,
        out: &mut Output,
        max: usize,
        turn: &mut SocketTurn<'_>,
    ) -> io::Result<usize> {
        if let Some(tls) = &mut self.tls {
            if !self.writable {
                return Ok(0);
            }
            let (sent, is_writable) = tls.send(&mut self.stream, out, max, turn.tls)?;
            turn.metrics.wrote(sent);
            self.writable = is_writable;
            return Ok(sent);
        }
        let mut sent = 0;
        while self.writable && !out.is_empty() && sent < max {
            match out.write_to(&mut self.stream) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    turn.metrics.wrote(count);
                    sent += count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }

    /// Tells the client that the connection ends, as far as the socket takes it at once.
    pub(super) fn close(&mut self) {
        if let Some(tls) = &mut self.tls
            && self.writable
        {
            tls.close(&mut self.stream);
        }
    }
}
