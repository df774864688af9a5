//! The format of an encrypted audit log, see `docs/reference/formats/audit-log.md`.
//!
//! Invariant: no two records of lines behind one record of a key have the same number, also if the disk saw only a part of one: the
//! number is a nonce. So whoever goes on after a failure, or after a start, begins with a new record of a key.

use std::io::{self, Read};
use std::sync::Arc;

use kedge_encryption::{DataKey, PartCipher};

/// First bytes of a file; a file in plain text begins with a brace.
const MAGIC: [u8; 8] = *b"KDGAUDIT";
const VERSION: u32 = 1;
/// Magic, version, time of the first line, checksum.
pub(super) const HEADER_BYTES: usize = 24;
/// Kind, length of the payload, checksum.
const RECORD_HEADER_BYTES: usize = 9;
/// Kinds of records.
const KEY: u8 = 1;
const LINES: u8 = 2;
/// The largest payload of a record, in bytes: a batch of lines is shorter.
pub(super) const RECORD_BYTES_MAX: usize = 64 << 20;
/// The kind of file in the derivation of its keys.
const LABEL: &str = "kedge audit log";
const CONTEXT_BYTES: usize = 32;
const NUMBER_BYTES: usize = 8;

/// Returns the header of a file whose first line has this time.
pub(super) fn header(unix_ms: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..20].copy_from_slice(&unix_ms.to_le_bytes());
    let sum = crc32c::crc32c(&header[..20]);
    header[20..].copy_from_slice(&sum.to_le_bytes());
    header
}

/// Returns whether a file that begins with these bytes is encrypted.
pub(super) fn is_encrypted(start: &[u8]) -> bool {
    start.starts_with(&MAGIC)
}

/// The reason why a part of a file is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FormatError {
    #[error("it has format version {0}, and this release reads version {VERSION}")]
    Version(u32),
    #[error("it is damaged")]
    Damaged,
}

/// Returns the time of the first line.
pub(super) fn check_header(header: &[u8; HEADER_BYTES]) -> Result<u64, FormatError> {
    let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("4 bytes"));
    if !is_encrypted(header) || number(20) != crc32c::crc32c(&header[..20]) {
        return Err(FormatError::Damaged);
    }
    match number(8) {
        VERSION => Ok(u64::from_le_bytes(
            header[12..20].try_into().expect("8 bytes"),
        )),
        other => Err(FormatError::Version(other)),
    }
}

/// A record, as it is in the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// The name of the data key of the records behind it, and the context from which their key is derived.
    Key {
        id: String,
        context: [u8; CONTEXT_BYTES],
    },
    /// Lines, encrypted, and their number.
    Lines { number: u64, sealed: Vec<u8> },
}

fn put_record(kind: u8, payload: &[u8], out: &mut Vec<u8>) {
    let bytes = u32::try_from(payload.len()).expect("a batch of lines is short");
    let start = out.len();
    out.push(kind);
    out.extend_from_slice(&bytes.to_le_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c(&out[start..]), payload);
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(payload);
}

/// The cipher of the records behind one record of a key.
#[derive(Debug)]
pub(super) struct AuditSeal {
    cipher: PartCipher,
    /// Held while it is in use.
    key: Arc<DataKey>,
    next: u64,
}

impl AuditSeal {
    /// Appends a record of a key.
    pub(super) fn begin(key: &Arc<DataKey>, out: &mut Vec<u8>) -> Self {
        let mut context = [0; CONTEXT_BYTES];
        getrandom::fill(&mut context).expect("the system has random numbers");
        let mut payload = key.id().as_bytes().to_vec();
        payload.extend_from_slice(&context);
        put_record(KEY, &payload, out);
        Self::new(key, &context)
    }

    /// Returns the cipher of the records behind such a record.
    pub(super) fn new(key: &Arc<DataKey>, context: &[u8; CONTEXT_BYTES]) -> Self {
        Self {
            cipher: PartCipher::new(key, LABEL, context),
            key: Arc::clone(key),
            next: 0,
        }
    }

    /// Returns the name of the data key.
    pub(super) fn key_id(&self) -> &str {
        self.key.id()
    }

    /// Appends a record of lines.
    pub(super) fn seal(&mut self, lines: &[u8], out: &mut Vec<u8>) {
        let number = self.next.to_le_bytes();
        let mut sealed = lines.to_vec();
        self.cipher.seal(self.next, &number, &mut sealed);
        self.next += 1;
        put_record(LINES, &[&number[..], &sealed].concat(), out);
    }

    /// Decrypts lines. Their number has to be that of no record before.
    pub(super) fn open(&mut self, number: u64, sealed: &mut Vec<u8>) -> Result<(), FormatError> {
        if number < self.next {
            return Err(FormatError::Damaged);
        }
        let opened = self.cipher.open(number, &number.to_le_bytes(), sealed);
        opened.map_err(|_| FormatError::Damaged)?;
        self.next = number + 1;
        Ok(())
    }
}

/// The reason why a record is not read.
#[derive(Debug)]
pub(super) enum RecordError {
    /// The file ends within it: a crash has interrupted its write, or it is being written.
    Torn,
    Damaged,
    Io(io::Error),
}

/// Reads the records behind the header.
#[derive(Debug)]
pub(super) struct RecordReader<R> {
    from: R,
    /// The number of bytes of the records that were read.
    pub(super) bytes: u64,
}

impl<R: Read> RecordReader<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, bytes: 0 }
    }

    /// Returns the next record; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Record>, RecordError> {
        let mut head = [0; RECORD_HEADER_BYTES];
        match self.fill(&mut head)? {
            0 => return Ok(None),
            RECORD_HEADER_BYTES => {}
            _ => return Err(RecordError::Torn),
        }
        let bytes = u32::from_le_bytes(head[1..5].try_into().expect("4 bytes"));
        let sum = u32::from_le_bytes(head[5..].try_into().expect("4 bytes"));
        let bytes = bytes as usize;
        if bytes > RECORD_BYTES_MAX {
            return Err(RecordError::Damaged);
        }
        let mut payload = Vec::new();
        read_all((&mut self.from).take(bytes as u64), &mut payload)?;
        if payload.len() < bytes {
            return Err(RecordError::Torn);
        }
        let found = crc32c::crc32c_append(crc32c::crc32c(&head[..5]), &payload);
        let record = record(head[0], &payload).filter(|_| found == sum);
        let record = record.ok_or(RecordError::Damaged)?;
        self.bytes += (RECORD_HEADER_BYTES + bytes) as u64;
        Ok(Some(record))
    }

    /// Reads as many bytes as there are, and returns their number.
    fn fill(&mut self, buf: &mut [u8]) -> Result<usize, RecordError> {
        let mut filled = Vec::new();
        read_all((&mut self.from).take(buf.len() as u64), &mut filled)?;
        buf[..filled.len()].copy_from_slice(&filled);
        Ok(filled.len())
    }
}

fn read_all(mut from: impl Read, into: &mut Vec<u8>) -> Result<(), RecordError> {
    from.read_to_end(into).map(|_| ()).map_err(RecordError::Io)
}

fn record(kind: u8, payload: &[u8]) -> Option<Record> {
    match kind {
        KEY => {
            let (id, context) = payload.split_last_chunk::<CONTEXT_BYTES>()?;
            Some(Record::Key {
                id: String::from_utf8(id.to_vec()).ok()?,
                context: *context,
            })
        }
        LINES => {
            let (number, sealed) = payload.split_first_chunk::<NUMBER_BYTES>()?;
            Some(Record::Lines {
                number: u64::from_le_bytes(*number),
                sealed: sealed.to_vec(),
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_states_the_time_and_every_damage_is_found() {
        let good = header(1_709_251_199_007);
        assert_eq!(check_header(&good), Ok(1_709_251_199_007));
        assert!(is_encrypted(&good) && !is_encrypted(b"{\"timestamp\""));
        for bit in 0..good.len() * 8 {
            let mut damaged = good;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(check_header(&damaged), Err(FormatError::Damaged), "{bit}");
        }
        let mut newer = good;
        newer[8] = 2;
        let sum = crc32c::crc32c(&newer[..20]);
        newer[20..].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(check_header(&newer), Err(FormatError::Version(2)));
    }

    #[test]
    fn records_end_where_a_crash_has_torn_them() {
        let mut bytes = Vec::new();
        put_record(LINES, &[7; 20], &mut bytes);
        let first = bytes.len();
        put_record(KEY, &[b'k'; 40], &mut bytes);
        for end in 0..=bytes.len() {
            let mut reader = RecordReader::new(&bytes[..end]);
            let mut whole = 0;
            let torn = loop {
                match reader.next() {
                    Ok(Some(_)) => whole += 1,
                    Ok(None) => break false,
                    Err(RecordError::Torn) => break true,
                    Err(error) => panic!("{end}: {error:?}"),
                }
            };
            let expected = usize::from(end >= first) + usize::from(end == bytes.len());
            let ends = [0, first, bytes.len()];
            assert_eq!((whole, torn), (expected, !ends.contains(&end)), "{end}");
            assert_eq!(reader.bytes as usize, ends[whole]);
        }
        for bit in 0..first * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            RecordReader::new(&*damaged).next().expect_err("damage");
        }
    }
}
