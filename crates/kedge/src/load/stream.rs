//! The socket of a connection of the generator, with or without TLS. It does not block.

use std::io::{self, ErrorKind, Read, Write};

use kedge_tls::ClientStream;
use kedge_tls::rustls::ClientConnection;
use mio::net::TcpStream;
use mio::{Interest, Poll, Token};
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// A socket that a poll watches.
pub(super) struct LoadStream {
    socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
}

impl LoadStream {
    /// Takes over an open connection.
    ///
    /// # Errors
    /// Those of the socket and the poll.
    pub(super) fn register(poll: &Poll, stream: ClientStream, at: usize) -> io::Result<Self> {
        let (tls, socket) = match stream {
            ClientStream::Plain(socket) => (None, socket),
            ClientStream::Tls(stream) => (Some(Box::new(stream.conn)), stream.sock),
        };
        socket.set_read_timeout(None)?;
        socket.set_write_timeout(None)?;
        socket.set_nonblocking(true)?;
        let mut socket = TcpStream::from_std(socket);
        let both = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut socket, Token(at), both)?;
        Ok(Self { socket, tls })
    }

    /// Returns true if a short receive means that the socket is empty.
    pub(super) fn is_drained_by_short_receive(&self) -> bool {
        self.tls.is_none()
    }

    /// Returns true if records wait for the socket.
    pub(super) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Sends bytes and returns their number.
    ///
    /// # Errors
    /// `WouldBlock` if the socket is full, `Interrupted`, and other ones of the socket.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            // A direct system call: that of the standard library costs this generator four percent of its time.
            return Ok(send(&self.socket, bytes, SendFlags::NOSIGNAL)?);
        };
        let taken = tls.writer().write(bytes)?;
        self.flush()?;
        match taken {
            0 => Err(ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        }
    }

    /// Sends records that wait, as far as the socket takes them.
    ///
    /// # Errors
    /// Those of the socket, but `WouldBlock` and `Interrupted`.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            return Ok(());
        };
        while tls.wants_write() {
            match tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Receives bytes and returns their number, 0 at the end.
    ///
    /// # Errors
    /// As those of [`Self::send`].
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            let (count, _) = recv(&self.socket, buffer, RecvFlags::empty())?;
            return Ok(count);
        };
        loop {
            match tls.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
            tls.read_tls(&mut self.socket)?;
            tls.process_new_packets()
                .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        }
    }
}
