//! The socket of a link, with or without TLS, that never blocks.
//!
//! With TLS, received records are decrypted as far as the caller has room, and sent bytes are encrypted at once. Records for
//! which the socket has no room wait until it is writable.

use std::io::{self, Read, Write};

use kedge_tls::ClientStream;
use kedge_tls::rustls::ClientConnection;
use mio::net::TcpStream;

/// Bytes of received records that one system call fetches.
const RECORD_BYTES: usize = 64 << 10;

/// The socket of a link.
pub(super) enum LinkStream {
    Plain(TcpStream),
    Tls(Box<TlsLink>),
}

/// A connection with TLS.
pub(super) struct TlsLink {
    socket: TcpStream,
    session: ClientConnection,
    /// Received records: those from `from` to `to` were not given to the session.
    records: Box<[u8]>,
    from: usize,
    to: usize,
    /// The end of the connection, which the next read reports.
    end: Option<io::Error>,
}

impl LinkStream {
    /// Takes over a connection that does not block any more.
    pub(super) fn new(stream: ClientStream) -> Self {
        match stream {
            ClientStream::Plain(socket) => Self::Plain(TcpStream::from_std(socket)),
            ClientStream::Tls(stream) => {
                let (session, socket) = stream.into_parts();
                Self::Tls(Box::new(TlsLink {
                    socket: TcpStream::from_std(socket),
                    session,
                    records: vec![0; RECORD_BYTES].into_boxed_slice(),
                    from: 0,
                    to: 0,
                    end: None,
                }))
            }
        }
    }

    /// Returns the socket, for a poll.
    pub(super) fn socket_mut(&mut self) -> &mut TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(link) => &mut link.socket,
        }
    }

    /// Returns whether records wait for the socket.
    pub(super) fn has_unsent(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(link) => link.session.wants_write(),
        }
    }

    /// Returns whether the next read has a result, although the last one did not fill its buffer.
    pub(super) fn has_end(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(link) => link.end.is_some(),
        }
    }
}

impl Read for LinkStream {
    /// Reads until `out` is full or nothing is there any more.
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(out),
            Self::Tls(link) => link.read(out),
        }
    }
}

impl Write for LinkStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(link) => link.write(bytes),
        }
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write_vectored(slices),
            Self::Tls(link) => {
                let first = slices.iter().find(|slice| !slice.is_empty());
                first.map_or(Ok(0), |slice| link.write(slice))
            }
        }
    }

    /// Sends waiting records.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(link) => link.send_records(),
        }
    }
}

impl TlsLink {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if let Some(end) = self.end.take() {
            return Err(end);
        }
        let mut count = 0;
        while count < out.len() {
            match self.read_some(&mut out[count..]) {
                Ok(more) => count += more,
                Err(error) if count == 0 => return Err(error),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.end = Some(error);
                    break;
                }
            }
        }
        Ok(count)
    }

    /// Decrypts at least one byte.
    fn read_some(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(out) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
            if self.from == self.to {
                (self.from, self.to) = (0, 0);
                self.to = self.socket.read(&mut self.records)?;
                if self.to == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            let mut rest = &self.records[self.from..self.to];
            self.from += self.session.read_tls(&mut rest)?;
            let processed = self.session.process_new_packets();
            processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send_records()?;
        let count = self.session.writer().write(bytes)?;
        match self.send_records() {
            // They are sent when the socket is writable.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(count),
            sent => sent.map(|()| count),
        }
    }

    fn send_records(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
