//! A client's socket, and its readiness.
//!
//! The poll is edge-triggered, so the readiness is kept here: the socket is readable until a receive came back short, and
//! writable until a send did.

use std::io::{self, Read};

use kedge_node::output::Output;
use mio::net::TcpStream;

use crate::metrics::ThreadMetrics;

/// A client's socket.
pub(super) struct ClientSocket {
    stream: TcpStream,
    readable: bool,
    writable: bool,
    /// The poll has reported the end of the stream, which is received behind the last bytes.
    end_reported: bool,
    /// The end of the stream was received.
    at_end: bool,
}

impl ClientSocket {
    /// A socket that may be ready already.
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            readable: true,
            writable: true,
            end_reported: false,
            at_end: false,
        }
    }

    pub(super) fn stream_mut(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// The poll has reported that the socket is ready.
    pub(super) fn on_ready(&mut self, readable: bool, writable: bool, at_end: bool) {
        self.readable |= readable || at_end;
        self.writable |= writable;
        self.end_reported |= at_end;
    }

    /// Returns true if a receive may return bytes.
    pub(super) fn is_readable(&self) -> bool {
        self.readable && !self.at_end
    }

    pub(super) fn is_writable(&self) -> bool {
        self.writable
    }

    /// Returns true if the client sends no more.
    pub(super) fn is_at_end(&self) -> bool {
        self.at_end
    }

    /// Receives once, and returns the number of bytes: 0 at the end of the stream, or if there are none yet.
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        metrics: &ThreadMetrics,
    ) -> io::Result<usize> {
        match self.stream.read(buffer) {
            Ok(0) => {
                self.at_end = true;
                Ok(0)
            }
            Ok(count) => {
                metrics.read(count);
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
        metrics: &ThreadMetrics,
    ) -> io::Result<usize> {
        let before = buffer.len();
        let result = (&mut self.stream).take(max as u64).read_to_end(buffer);
        let count = buffer.len() - before;
        metrics.read(count);
        match result {
            Ok(_) => {
                self.at_end = count < max;
                Ok(count)
            }
            Err(error) => self.not_ready(error).map(|_| count),
        }
    }

    fn not_ready(&mut self, error: io::Error) -> io::Result<usize> {
        match error.kind() {
            io::ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(0)
            }
            // The socket is still readable, so the caller tries again.
            io::ErrorKind::Interrupted => Ok(0),
            _ => Err(error),
        }
    }

    /// Sends output while the socket takes it, up to `max` bytes and what one call sends beyond. Returns the number of bytes.
    pub(super) fn send(
        &mut self,
        out: &mut Output,
        max: usize,
        metrics: &ThreadMetrics,
    ) -> io::Result<usize> {
        let mut sent = 0;
        while self.writable && !out.is_empty() && sent < max {
            match out.write_to(&mut self.stream) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    metrics.wrote(count);
                    sent += count;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }
}
