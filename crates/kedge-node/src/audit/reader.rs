//! Files of the audit log as text, for the tool that prints them.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kedge_encryption::DataKey;

use super::file::FILE;
use super::format::{
    AuditSeal, HEADER_BYTES, Record, RecordError, RecordReader, check_header, is_encrypted,
};

/// The number of bytes of a file in plain text that are read at once.
const PART_BYTES: usize = 64 << 10;

/// The reason why a file of the audit log is not printed, or not to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditReadError {
    /// It cannot be read.
    #[error("{0}")]
    Read(#[source] io::Error),
    /// The lines cannot be written.
    #[error("standard output: {0}")]
    Write(#[source] io::Error),
    /// The data key with this name is needed.
    #[error("it is encrypted with the data key {0}")]
    KeyNeeded(String),
    /// Bytes are no records, or a record does not decrypt.
    #[error("{0}, behind the lines before")]
    Damaged(String),
}

/// Returns the files of the audit log in a data directory, the oldest first.
///
/// # Errors
/// The directory cannot be read.
pub fn audit_files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let Ok(name) = entry?.file_name().into_string() else {
            continue;
        };
        let number = match name.strip_prefix(FILE) {
            Some("") => Some(0_u32),
            Some(rest) => rest
                .strip_prefix('.')
                .and_then(|number| number.parse().ok()),
            None => None,
        };
        found.extend(number.map(|number| (number, dir.join(name))));
    }
    found.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Prints the lines of a file, encrypted or not. `find` returns the data key with a name. A last record that a crash has torn is
/// ignored.
///
/// # Errors
/// [`AuditReadError`]. The lines before were printed.
pub fn print_audit_file(
    mut from: impl Read,
    find: &mut dyn FnMut(&str) -> Option<Arc<DataKey>>,
    out: &mut impl Write,
) -> Result<(), AuditReadError> {
    let mut start = Vec::new();
    let head = (&mut from).take(HEADER_BYTES as u64);
    read_to_end(head, &mut start)?;
    if !is_encrypted(&start) {
        return print_plain(start, from, out);
    }
    let Ok(header) = start.try_into() else {
        return Ok(());
    };
    let damaged = |why: String| AuditReadError::Damaged(why);
    check_header(&header).map_err(|error| damaged(error.to_string()))?;
    let mut records = RecordReader::new(from);
    let mut seal: Option<AuditSeal> = None;
    loop {
        match records.next() {
            Ok(None) | Err(RecordError::Torn) => return Ok(()),
            Ok(Some(Record::Key { id, context })) => {
                let key = find(&id).ok_or(AuditReadError::KeyNeeded(id))?;
                seal = Some(AuditSeal::new(&key, &context));
            }
            Ok(Some(Record::Lines { number, mut sealed })) => {
                let opened = seal.as_mut().map(|seal| seal.open(number, &mut sealed));
                match opened {
                    Some(Ok(())) => out.write_all(&sealed).map_err(AuditReadError::Write)?,
                    _ => return Err(damaged("lines do not decrypt".to_owned())),
                }
            }
            Err(RecordError::Damaged) => return Err(damaged("it is damaged".to_owned())),
            Err(RecordError::Io(error)) => return Err(AuditReadError::Read(error)),
        }
    }
}

fn print_plain(
    start: Vec<u8>,
    mut from: impl Read,
    out: &mut impl Write,
) -> Result<(), AuditReadError> {
    let mut part = start;
    while !part.is_empty() {
        out.write_all(&part).map_err(AuditReadError::Write)?;
        part.resize(PART_BYTES, 0);
        let bytes = from.read(&mut part).map_err(AuditReadError::Read)?;
        part.truncate(bytes);
    }
    Ok(())
}

fn read_to_end(mut from: impl Read, into: &mut Vec<u8>) -> Result<(), AuditReadError> {
    from.read_to_end(into)
        .map(|_| ())
        .map_err(AuditReadError::Read)
}
