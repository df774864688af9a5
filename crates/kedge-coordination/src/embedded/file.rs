//! The files of an embedded store: one line of fixed length, the state as JSON, and spare space.
//!
//! ```text
//! kedge-coordination 2 STORE REVISION LENGTH CRC SYNCED
//! ```
//!
//! `STORE` (hexadecimal) identifies the store. `LENGTH` is that of the JSON text in bytes, and `CRC` the CRC-32 of the line
//! up to it and of the text. `SYNCED` is `S` once the file was synced. It is written after the sync, and the checksum does
//! not cover it.
//! A watcher reads the line only. The valid file with the greater revision counts.

use kedge_disk::{DiskError, File};

use crate::CoordinationError;

use super::state::State;

/// The length of the line.
pub(super) const HEADER_BYTES: usize = 88;
/// The place of [`SYNCED`], before the end of the line.
const SYNCED_AT: u64 = 79;
/// The mark of a file that was synced.
const SYNCED: &str = "S";
/// Its first words: the kind of the file, and the version of the format.
const MAGIC: &str = "kedge-coordination 2";

/// The first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) store: u64,
    pub(super) revision: u64,
    /// True if the file was synced. False if it is being written, or if its writer was killed.
    pub(super) is_synced: bool,
    len: usize,
    crc: u32,
}

/// Returns the bytes of the file.
pub(super) fn encode(store: u64, state: &State) -> Result<Vec<u8>, CoordinationError> {
    let damaged = |error: serde_json::Error| CoordinationError::Damaged(error.to_string());
    let text = serde_json::to_vec(state).map_err(damaged)?;
    let (revision, len) = (state.revision, text.len());
    let mut line = format!("{MAGIC} {store:016x} {revision:020} {len:010} ");
    let crc = checksum(line.as_bytes(), &text);
    line.push_str(&format!("{crc:08x}"));
    let mut bytes = format!("{line:<width$}\n", width = HEADER_BYTES - 1).into_bytes();
    assert_eq!(bytes.len(), HEADER_BYTES, "the line has a fixed length");
    bytes.extend_from_slice(&text);
    Ok(bytes)
}

/// Parses the first line.
pub(super) fn decode_header(bytes: &[u8]) -> Result<Header, CoordinationError> {
    let line = bytes.get(..HEADER_BYTES).unwrap_or_default();
    let line = std::str::from_utf8(line).unwrap_or_default();
    let parse = || {
        let mut words = line.strip_prefix(MAGIC)?.split_whitespace();
        Some(Header {
            store: u64::from_str_radix(words.next()?, 16).ok()?,
            revision: words.next()?.parse().ok()?,
            len: words.next()?.parse().ok()?,
            crc: u32::from_str_radix(words.next()?, 16).ok()?,
            is_synced: words.next() == Some(SYNCED),
        })
    };
    parse().ok_or_else(|| {
        CoordinationError::Damaged("the file does not begin with a line of version 2: it is damaged, or a newer release wrote it".to_owned())
    })
}

/// Reads the first line of a file.
pub(super) fn read_header(file: &dyn File) -> Result<Header, CoordinationError> {
    let mut line = [0; HEADER_BYTES];
    read(file, &mut line, 0)?;
    decode_header(&line)
}

/// Marks a file as synced, after the sync.
pub(super) fn mark_synced(file: &dyn File) -> Result<(), DiskError> {
    file.write_at(SYNCED.as_bytes(), SYNCED_AT)
}

/// Reads the line and the state of a file that had this line before. It may have been overwritten since.
pub(super) fn read_state(
    header: Header,
    file: &dyn File,
) -> Result<(Header, State), CoordinationError> {
    // A length that cannot be takes no memory.
    if header.len as u64 > file.len()? {
        return Err(CoordinationError::Damaged(
            "the file is too short".to_owned(),
        ));
    }
    let mut bytes = vec![0; HEADER_BYTES + header.len];
    read(file, &mut bytes, 0)?;
    decode(&bytes)
}

/// Fills the buffer. A file that is too short is damaged.
fn read(file: &dyn File, buffer: &mut [u8], offset: u64) -> Result<(), CoordinationError> {
    file.read_at(buffer, offset).map_err(|error| {
        if error.source.kind() == std::io::ErrorKind::UnexpectedEof {
            CoordinationError::Damaged("the file is too short".to_owned())
        } else {
            error.into()
        }
    })
}

/// Parses the line and the text.
fn decode(bytes: &[u8]) -> Result<(Header, State), CoordinationError> {
    let damaged = |why: String| CoordinationError::Damaged(why);
    let header = decode_header(bytes)?;
    let text = bytes.get(HEADER_BYTES..).unwrap_or_default();
    let covered = format!("{header:08x}", header = header.crc);
    let line = std::str::from_utf8(&bytes[..HEADER_BYTES]).unwrap_or_default();
    let line = line.split_once(&covered).map_or("", |(before, _)| before);
    if text.len() != header.len || checksum(line.as_bytes(), text) != header.crc {
        return Err(damaged("the checksum of the file is wrong".to_owned()));
    }
    let mut state: State = serde_json::from_slice(text).map_err(|it| damaged(it.to_string()))?;
    state.revision = header.revision;
    Ok((header, state))
}

fn checksum(line: &[u8], text: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(line);
    hasher.update(text);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_it_was_written_and_a_changed_byte_is_noticed() {
        let mut state = State::new();
        state.revision = u64::MAX;
        let bytes = encode(u64::MAX, &state).expect("the state is text");
        let header = decode_header(&bytes).expect("the line is valid");
        let (_, read) = decode(&bytes).expect("it is valid");
        assert_eq!((header.store, read.revision), (u64::MAX, u64::MAX));
        assert!(!header.is_synced);
        let mut synced = bytes.clone();
        synced[SYNCED_AT as usize] = SYNCED.as_bytes()[0];
        let (synced, _) = decode(&synced).expect("it is valid");
        assert!(synced.is_synced);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let is_padding = at < HEADER_BYTES && matches!(bytes[at], b' ' | b'\n');
            assert!(decode(&changed).is_err() || is_padding, "byte {at}");
        }
        state.revision = 1;
        let other = encode(1, &state).expect("the state is text");
        assert_eq!(other.len(), bytes.len());
    }
}
