//! The data keys of an encrypted audit log: those of the node, in the keyring of its data directory.

use std::collections::BTreeSet;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use kedge_disk::{Disk, DiskError, File};
use kedge_encryption::{DataKey, Keyring, KeyringError};

use super::Audit;
use super::file::FILE;
use super::format::{HEADER_BYTES, Record, RecordError, RecordReader, is_encrypted};

/// The age at which new lines get a new data key, in seconds.
pub const AUDIT_KEY_ROTATION_SECS: u64 = 30 * 86_400;

/// The state of the encryption of an audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditEncryption {
    /// True if new lines are encrypted.
    pub is_enabled: bool,
    /// The number of data keys.
    pub keys: usize,
    /// The time at which the oldest data key was created, in seconds since 1970.
    pub oldest_unix_secs: Option<u64>,
    /// The number of encrypted files.
    pub encrypted_files: usize,
    /// The number of files in plain text.
    pub plain_files: usize,
}

impl Audit {
    /// Returns the state of the encryption; `None` if there is no place for a log.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn encryption(&self) -> io::Result<Option<AuditEncryption>> {
        let Some(log) = &self.log else {
            return Ok(None);
        };
        let file = log.file.lock();
        let (disk, dir, keys) = file.place();
        let state = keys.state(&**disk, dir).map_err(io::Error::other)?;
        Ok(Some(state))
    }

    /// Gives new lines a new data key. Older files keep theirs.
    ///
    /// # Errors
    /// [`KeyringError`]. The keys are unchanged then.
    pub fn rotate_keys(&self) -> Result<(), KeyringError> {
        match &self.log {
            Some(log) => log.file.lock().place().2.rotate(super::unix_ms()),
            None => Ok(()),
        }
    }

    /// Has the master key wrap the data keys again.
    ///
    /// # Errors
    /// [`KeyringError`]. The keys are unchanged then.
    pub fn rewrap_keys(&self) -> Result<(), KeyringError> {
        let Some(log) = &self.log else {
            return Ok(());
        };
        // Lines are written while a key management service is asked.
        let keys = log.file.lock().place().2.clone();
        keys.0.map_or(Ok(()), |keyring| keyring.rewrap())
    }
}

/// The keys. Without a keyring, or an active key in it, lines are in plain text.
#[derive(Clone, Debug, Default)]
pub(super) struct AuditKeys(pub(super) Option<Arc<Keyring>>);

impl AuditKeys {
    /// Returns the key of new lines; `None` if they are in plain text.
    pub(super) fn active(&self) -> Option<Arc<DataKey>> {
        self.0.as_ref()?.keys().active().cloned()
    }

    /// Gives new lines a new key if the active one is old. The old one is used on if that fails.
    pub(super) fn renew(&self, now_ms: u64) {
        let now_secs = now_ms / 1_000;
        let is_old = |key: &Arc<DataKey>| {
            now_secs.saturating_sub(key.created_unix_secs()) >= AUDIT_KEY_ROTATION_SECS
        };
        if self.active().as_ref().is_some_and(is_old)
            && let Err(error) = self.rotate(now_ms)
        {
            tracing::warn!(%error, "the audit log has no new data key");
        }
    }

    /// Gives new lines a new key.
    pub(super) fn rotate(&self, now_ms: u64) -> Result<(), KeyringError> {
        match &self.0 {
            Some(keyring) => keyring.rotate(now_ms / 1_000, true),
            None => Ok(()),
        }
    }

    /// Removes the keys that no file of the directory needs. If that is not known, all stay.
    pub(super) fn prune(&self, disk: &dyn Disk, dir: &Path) {
        let Some(keyring) = &self.0 else {
            return;
        };
        // Before the search: a file that is begun later has none of these.
        let mut unused = keyring.unleased();
        if unused.is_empty() {
            return;
        }
        let removed = needed_keys(disk, dir)
            .map_err(KeyringError::from)
            .and_then(|needed| {
                unused.retain(|id| !needed.contains(id));
                keyring.remove(&unused)
            });
        if let Err(error) = removed {
            tracing::warn!(%error, "old data keys of the audit log are kept");
        }
    }

    /// Returns the state of the keys and of the files of the directory.
    pub(super) fn state(&self, disk: &dyn Disk, dir: &Path) -> Result<AuditEncryption, DiskError> {
        let keys = self.0.as_ref().map(|keyring| keyring.keys());
        let mut state = AuditEncryption {
            is_enabled: self.active().is_some(),
            keys: keys.as_ref().map_or(0, |keys| keys.len()),
            oldest_unix_secs: keys
                .and_then(|keys| keys.iter().map(|key| key.created_unix_secs()).min()),
            ..AuditEncryption::default()
        };
        for name in log_files(disk, dir)? {
            let file = disk.open(&dir.join(name))?;
            match start(&*file)? {
                start if is_encrypted(&start) => state.encrypted_files += 1,
                start if !start.is_empty() => state.plain_files += 1,
                _ => {}
            }
        }
        Ok(state)
    }
}

/// Returns the names of the files of a log, in no order.
fn log_files(disk: &dyn Disk, dir: &Path) -> Result<Vec<String>, DiskError> {
    let mut names = disk.list(dir)?;
    names.retain(|name| name == FILE || name.starts_with("audit.log."));
    Ok(names)
}

/// Returns the first bytes of a file, as many as a header has if there are as many.
pub(super) fn start(file: &dyn File) -> Result<Vec<u8>, DiskError> {
    let bytes = file.len()?.min(HEADER_BYTES as u64);
    let mut start = vec![0; bytes as usize];
    file.read_at(&mut start, 0)?;
    Ok(start)
}

/// Returns the names of the keys that the files of a log need.
fn needed_keys(disk: &dyn Disk, dir: &Path) -> Result<BTreeSet<String>, DiskError> {
    let mut needed = BTreeSet::new();
    for name in log_files(disk, dir)? {
        let path = dir.join(name);
        let file = disk.open(&path)?;
        if !is_encrypted(&start(&*file)?) {
            continue;
        }
        let mut records = records(&*file)?;
        loop {
            match records.next() {
                Ok(Some(Record::Key { id, .. })) => drop(needed.insert(id)),
                Ok(Some(Record::Lines { .. })) => {}
                // No lines follow.
                Ok(None) | Err(RecordError::Torn) => break,
                Err(error) => {
                    let source = match error {
                        RecordError::Io(source) => source,
                        _ => io::ErrorKind::InvalidData.into(),
                    };
                    return Err(DiskError::new(kedge_disk::Operation::Read, &path, source));
                }
            }
        }
    }
    Ok(needed)
}

/// Returns the reader of the records of a file.
pub(super) fn records(file: &dyn File) -> Result<RecordReader<impl Read>, DiskError> {
    let rest = FileBytes {
        at: HEADER_BYTES as u64,
        end: file.len()?,
        file,
    };
    Ok(RecordReader::new(BufReader::with_capacity(256 << 10, rest)))
}

/// The bytes of a file from an offset on.
struct FileBytes<'f> {
    file: &'f dyn File,
    at: u64,
    end: u64,
}

impl Read for FileBytes<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let bytes = buf.len().min(left);
        let read = self.file.read_at(&mut buf[..bytes], self.at);
        read.map_err(io::Error::other)?;
        self.at += bytes as u64;
        Ok(bytes)
    }
}
