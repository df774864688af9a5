//! The TLS session of a connection: from received records to bytes, and from output to records.
//!
//! It knows no socket. Records are received into a buffer that the connections of a thread share, decrypted there, and
//! their content is given to the parser's buffer. Output is encrypted into the same buffer and sent from there. A
//! session keeps only the bytes that came without the rest of their record, and those that the socket did not take.
//!
//! Invariants:
//! * `encrypted` begins where rustls has stopped. rustls may have decrypted some of it in place (a part of a handshake
//!   message), so it gets these bytes from their start each time, even to encrypt.
//! * Bytes in `decrypted` precede those in `encrypted`; bytes in `unsent` precede all that is encrypted later.

mod plain_bytes;
mod records;
#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use kedge_node::output::Output;
use kedge_tls::FailureReason;
use kedge_tls::rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use kedge_tls::rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus, WriteTraffic,
};
use kedge_tls::rustls::{self, CommonState, HandshakeKind, ServerConfig};

use super::byte_queue::ByteQueue;
use crate::limits::TLS_INCOMPLETE_BYTES_MAX;
use crate::request_memory::FREE_BYTES;
pub(super) use plain_bytes::PlainBytes;
use records::{RECORD_EXTRA_BYTES, RECORD_PLAIN_BYTES, RecordWriter};

/// The length of the buffer for records, in bytes.
const RECORDS_BYTES: usize = 4 * (RECORD_PLAIN_BYTES + RECORD_EXTRA_BYTES);
/// Room for the alert at the end of a session, in bytes.
const ALERT_BYTES: usize = 512;
/// The number of bytes that a session keeps, at most: records that were received together, and the content of one.
pub(super) const TLS_HELD_BYTES_MAX: usize = RECORDS_BYTES + RECORD_PLAIN_BYTES;

const _: () = assert!(TLS_INCOMPLETE_BYTES_MAX < RECORDS_BYTES);
const _: () = assert!(TLS_HELD_BYTES_MAX <= crate::limits::TLS_BYTES_MAX);

/// Memory for records that the connections of a thread share. None without TLS connections.
#[derive(Default)]
pub(crate) struct TlsBuffers {
    records: Vec<u8>,
    gathered: Vec<u8>,
}

impl TlsBuffers {
    fn records(&mut self) -> &mut [u8] {
        self.records.resize(RECORDS_BYTES, 0);
        &mut self.records
    }
}

/// The result of the one read of [`TlsSession::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocketRead {
    /// The socket was not read.
    Untried,
    /// Bytes were received, perhaps fewer than there was room for.
    Bytes {
        /// The number of bytes.
        count: usize,
        /// True if the socket had no more.
        is_short: bool,
    },
    /// The socket has no bytes yet.
    Blocked,
    /// The end of the stream.
    End,
}

/// The progress of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The handshake is not complete.
    Handshake,
    /// The handshake is complete, and the connection has not seen that yet.
    Completed,
    /// Records of requests and replies.
    Traffic,
    /// An error has ended the session.
    Failed,
}

/// The end of the client's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamEnd {
    /// The client has sent close_notify: nothing is missing.
    Notified,
    /// The stream has ended without close_notify. Someone may have cut it off.
    Truncated,
}

/// The TLS session of a connection.
pub(super) struct TlsSession {
    connection: UnbufferedServerConnection,
    /// Bytes that were received and not decrypted, or not completely.
    encrypted: Vec<u8>,
    /// True if `encrypted` may have whole records, as the session has stopped before the end.
    has_records: bool,
    /// Bytes of requests for which there was no room.
    decrypted: ByteQueue,
    /// Records that the socket did not take.
    unsent: ByteQueue,
    phase: Phase,
    end: Option<StreamEnd>,
    /// The reason for which the handshake failed.
    failure: Option<FailureReason>,
}

impl TlsSession {
    /// The session of a client that has sent nothing yet.
    ///
    /// # Errors
    /// The error of rustls about the configuration.
    pub(super) fn new(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(Self {
            connection: UnbufferedServerConnection::new(config)?,
            encrypted: Vec::new(),
            has_records: false,
            decrypted: ByteQueue::default(),
            unsent: ByteQueue::default(),
            phase: Phase::Handshake,
            end: None,
            failure: None,
        })
    }

    /// Returns true if the handshake is not complete.
    pub(super) fn is_handshaking(&self) -> bool {
        self.phase == Phase::Handshake
    }

    /// The reason for which the handshake failed, if it did.
    pub(super) fn failure(&self) -> Option<FailureReason> {
        self.failure
    }

    /// Returns true if records wait for the socket.
    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Returns true if a receive may return bytes although the socket has none.
    pub(super) fn has_received(&self) -> bool {
        !self.decrypted.is_empty() || self.has_records
    }

    /// Returns true if the client sends no more and everything was received.
    pub(super) fn is_at_end(&self) -> bool {
        self.end.is_some() && !self.has_received()
    }

    /// Returns true if the stream has ended in a way that its client did not announce.
    pub(super) fn is_truncated(&self) -> bool {
        self.end == Some(StreamEnd::Truncated) && self.phase != Phase::Handshake
    }

    /// The number of received bytes that it keeps.
    pub(super) fn held_bytes(&self) -> usize {
        self.encrypted.len() + self.decrypted.len()
    }

    /// The properties of the session, with the client's certificate.
    pub(super) fn state(&self) -> &CommonState {
        &self.connection
    }

    /// Returns true once, when the handshake is complete. Output is sent from then on.
    pub(super) fn take_completed(&mut self) -> bool {
        let is_completed = self.phase == Phase::Completed;
        if is_completed {
            self.phase = Phase::Traffic;
        }
        is_completed
    }

    /// Returns true if the handshake resumed an earlier session of the client.
    pub(super) fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Decrypts what was received before, and what one read of `stream` returns, until `plain` is full or `is_over`. The
    /// stream is not read while records are left, and not at all without `stream`.
    ///
    /// # Errors
    /// The error of the stream, or of rustls (`InvalidData`), which ends the session. Its alert is in the unsent records.
    pub(super) fn receive(
        &mut self,
        stream: Option<&mut dyn Read>,
        plain: &mut PlainBytes<'_>,
        buffers: &mut TlsBuffers,
        is_over: &dyn Fn() -> bool,
    ) -> io::Result<SocketRead> {
        let taken = plain.put(self.decrypted.as_slice());
        self.decrypted.consume(taken);
        if plain.is_full() {
            return Ok(SocketRead::Untried);
        }
        let records = buffers.records();
        let kept = self.encrypted.len();
        records[..kept].copy_from_slice(&self.encrypted);
        let read = match stream {
            Some(stream) if !self.has_records && self.end.is_none() => {
                let room = plain.room().max(FREE_BYTES).min(RECORDS_BYTES - kept);
                read_once(stream, &mut records[kept..kept + room])?
            }
            _ => SocketRead::Untried,
        };
        let received = match read {
            SocketRead::Bytes { count, .. } => count,
            SocketRead::End => {
                self.end = Some(StreamEnd::Truncated);
                return Ok(read);
            }
            _ if !self.has_records => return Ok(read),
            _ => 0,
        };
        let records = &mut records[..kept + received];
        let result = self.decrypt(records, plain, is_over);
        let (consumed, has_records) = result.map_err(|error| self.fail(error))?;
        self.keep(&records[consumed..], has_records)?;
        if self.phase == Phase::Handshake && !self.connection.is_handshaking() {
            self.phase = Phase::Completed;
        }
        Ok(read)
    }

    /// Keeps bytes that are not decrypted yet.
    fn keep(&mut self, rest: &[u8], has_records: bool) -> io::Result<()> {
        self.has_records = has_records && !rest.is_empty();
        if !self.has_records && rest.len() > TLS_INCOMPLETE_BYTES_MAX {
            self.set_failed(FailureReason::Other);
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "a TLS message is too long",
            ));
        }
        // An idle session keeps no memory for it.
        self.encrypted = rest.to_vec();
        Ok(())
    }

    /// Decrypts records in place. Returns the number of bytes that are done, and whether it stopped before the last record.
    fn decrypt(
        &mut self,
        records: &mut [u8],
        plain: &mut PlainBytes<'_>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(usize, bool), rustls::Error> {
        let mut at = 0;
        loop {
            let status = self.connection.process_tls_records(&mut records[at..]);
            let UnbufferedStatus { mut discard, state } = status;
            let mut stops = false;
            match state? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        let taken = plain.put(record.payload);
                        self.decrypted.append(&record.payload[taken..]);
                    }
                    stops = plain.is_full() || is_over();
                }
                ConnectionState::EncodeTlsData(data) => encode(data, &mut self.unsent),
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::PeerClosed => self.end = Some(StreamEnd::Notified),
                _ => return Ok((at + discard, false)),
            }
            at += discard;
            if stops {
                return Ok((at, true));
            }
        }
    }

    /// Ends the session by an error. The alert about it is queued.
    fn fail(&mut self, error: rustls::Error) -> io::Error {
        self.set_failed(FailureReason::of(&error));
        // Only what rustls has queued: no more records are decrypted after an error.
        while self.connection.wants_write() {
            match self.connection.process_tls_records(&mut []).state {
                Ok(ConnectionState::EncodeTlsData(data)) => encode(data, &mut self.unsent),
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while traffic.next_record().is_some() {}
                }
                _ => break,
            }
        }
        io::Error::new(ErrorKind::InvalidData, error)
    }

    fn set_failed(&mut self, failure: FailureReason) {
        if self.phase == Phase::Handshake {
            self.failure = Some(failure);
        }
        self.phase = Phase::Failed;
        self.has_records = false;
    }

    /// Sends output as records while the stream takes them, up to `max` bytes and what one call sends beyond. Returns the
    /// number of sent bytes, and whether the stream may take more.
    ///
    /// # Errors
    /// The error of the stream, or of rustls.
    pub(super) fn send(
        &mut self,
        stream: &mut dyn Write,
        out: &mut Output,
        max: usize,
        buffers: &mut TlsBuffers,
    ) -> io::Result<(usize, bool)> {
        let (mut sent, mut is_writable) = self.flush(stream)?;
        while is_writable && !out.is_empty() && sent < max && self.phase == Phase::Traffic {
            buffers.records();
            let TlsBuffers { records, gathered } = buffers;
            let filled = self.encrypt(out, records, gathered)?;
            if filled == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
            // An empty queue: the records are sent from the shared buffer, and only those that are left are kept.
            let (count, takes_more) = write_some(stream, &records[..filled])?;
            self.unsent.append(&records[count..filled]);
            sent += count;
            is_writable = takes_more;
            if count < filled && is_writable {
                let (more, takes_more) = self.flush(stream)?;
                sent += more;
                is_writable = takes_more;
            }
        }
        Ok((sent, is_writable))
    }

    /// Sends records that the stream did not take before. Returns as [`Self::send`].
    pub(super) fn flush(&mut self, stream: &mut dyn Write) -> io::Result<(usize, bool)> {
        let mut sent = 0;
        while !self.unsent.is_empty() {
            let (count, is_writable) = write_some(stream, self.unsent.as_slice())?;
            self.unsent.consume(count);
            sent += count;
            if !is_writable {
                return Ok((sent, false));
            }
        }
        Ok((sent, true))
    }

    /// Encrypts output into `records`. Returns the number of bytes there.
    fn encrypt(
        &mut self,
        out: &mut Output,
        records: &mut [u8],
        gathered: &mut Vec<u8>,
    ) -> io::Result<usize> {
        self.write_traffic(records, |traffic, buffer| {
            let mut writer = RecordWriter {
                traffic,
                buffer,
                filled: 0,
                gathered,
            };
            out.write_to(&mut writer)?;
            Ok(writer.filled)
        })
    }

    /// Queues close_notify and sends it with the records before it, as far as the stream takes them at once.
    pub(super) fn close(&mut self, stream: &mut dyn Write) {
        if matches!(self.phase, Phase::Completed | Phase::Traffic) {
            let mut alert = [0; ALERT_BYTES];
            let written = self.write_traffic(&mut alert, |mut traffic, buffer| {
                let written = traffic.queue_close_notify(buffer);
                written.map_err(io::Error::other)
            });
            // The session ends in any case.
            self.unsent.append(&alert[..written.unwrap_or(0)]);
        }
        let _ = self.flush(stream);
    }

    /// Calls `write` when records with content may be written, behind those that rustls writes by itself. Returns the
    /// number of bytes written to `buffer`; none if the session may not write.
    fn write_traffic(
        &mut self,
        buffer: &mut [u8],
        write: impl FnOnce(WriteTraffic<'_, ServerConnectionData>, &mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut filled = 0;
        let mut write = Some(write);
        while write.is_some() {
            let status = self.connection.process_tls_records(&mut self.encrypted);
            let UnbufferedStatus { mut discard, state } = status;
            match state.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))? {
                ConnectionState::WriteTraffic(traffic) => {
                    if let Some(write) = write.take() {
                        filled += write(traffic, &mut buffer[filled..])?;
                    }
                }
                ConnectionState::EncodeTlsData(mut data) => {
                    let written = data.encode(&mut buffer[filled..]);
                    filled += written.map_err(io::Error::other)?;
                }
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(io::Error::other)?;
                        discard += record.discard;
                        self.decrypted.append(record.payload);
                    }
                }
                ConnectionState::PeerClosed => self.end = Some(StreamEnd::Notified),
                _ => write = None,
            }
            self.encrypted.drain(..discard);
        }
        Ok(filled)
    }
}

/// Appends a handshake message, or an alert.
fn encode(mut data: EncodeTlsData<'_, ServerConnectionData>, unsent: &mut ByteQueue) {
    // The length is known by the error about a buffer that is too short.
    if let Err(EncodeError::InsufficientSize(needed)) = data.encode(&mut []) {
        let mut message = vec![0; needed.required_size];
        let written = data.encode(&mut message).unwrap_or(0);
        unsent.append(&message[..written]);
    }
}

fn read_once(stream: &mut dyn Read, buffer: &mut [u8]) -> io::Result<SocketRead> {
    match stream.read(buffer) {
        Ok(0) => Ok(SocketRead::End),
        Ok(count) => Ok(SocketRead::Bytes {
            count,
            is_short: count < buffer.len(),
        }),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(SocketRead::Blocked),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(SocketRead::Untried),
        Err(error) => Err(error),
    }
}

/// Writes once. Returns the number of bytes, and whether the stream may take more.
fn write_some(stream: &mut dyn Write, bytes: &[u8]) -> io::Result<(usize, bool)> {
    match stream.write(bytes) {
        Ok(0) => Err(ErrorKind::WriteZero.into()),
        Ok(count) => Ok((count, true)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok((0, false)),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok((0, true)),
        Err(error) => Err(error),
    }
}
