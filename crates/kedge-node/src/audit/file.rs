//! The file of the audit log, and the older ones.
//!
//! Invariants:
//! * A file is encrypted, or in plain text, from its first line to its last. One of the other kind is rotated before the next line.
//! * What a failed write may have left is never followed by a record of the same key and number ([`super::format`]).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kedge_disk::{Disk, DiskError, File};
use serde_json::Value;

use super::format::{AuditSeal, HEADER_BYTES, check_header, header, is_encrypted};
use super::keys::{AuditKeys, records, start};
use crate::timestamp::unix_ms_of;

/// The current file; older ones have the suffixes `.1`, `.2` and so on.
pub(super) const FILE: &str = "audit.log";
/// The next file, while it is created.
const NEW_FILE: &str = "audit.log.new";
/// The longest first line whose time is read, in bytes.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The pause between two looks for files that are too old, in milliseconds.
const PRUNE_PAUSE_MS: u64 = 60_000;

/// The limits at which a file is rotated, before the next lines, and an older one removed.
#[derive(Clone, Copy, Debug)]
pub(super) struct RotationLimits {
    /// Its size, in bytes.
    pub(super) bytes_max: u64,
    /// The time since its first line, in milliseconds.
    pub(super) interval_ms: u64,
    /// The age of its last line at which an older file is removed, in milliseconds; 0 for none.
    pub(super) prune_age_ms: u64,
}

/// The current file and the older ones.
#[derive(Debug)]
pub(super) struct LogFile {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    files_max: u32,
    /// The file; `None` until it could be opened.
    file: Option<Box<dyn File>>,
    /// The length of the file, without lines that were lost.
    bytes: u64,
    /// The time of the first line, in milliseconds since 1970.
    began_ms: u64,
    /// The time of the last look for files that are too old, in milliseconds since 1970.
    pruned_ms: u64,
    /// True if the file may have bytes of lost lines at its end.
    is_torn: bool,
    keys: AuditKeys,
    /// The cipher of the next lines; `None` until the first ones, after a failure, and in plain text.
    seal: Option<AuditSeal>,
}

/// The lines in a file that is opened.
struct FoundLines {
    /// Its length without a torn end.
    bytes: u64,
    /// The time of the first line; `None` if there is none, or it is damaged.
    began_ms: Option<u64>,
}

impl LogFile {
    pub(super) fn new(disk: Arc<dyn Disk>, dir: PathBuf, files_max: u32, keys: AuditKeys) -> Self {
        Self {
            disk,
            dir,
            files_max,
            file: None,
            bytes: 0,
            began_ms: 0,
            pruned_ms: 0,
            is_torn: false,
            keys,
            seal: None,
        }
    }

    /// Returns the directory of the files, and their keys.
    pub(super) fn place(&self) -> (&Arc<dyn Disk>, &Path, &AuditKeys) {
        (&self.disk, &self.dir, &self.keys)
    }

    /// Opens or creates the file at a start. On a full disk that waits.
    pub(super) fn open(&mut self, now_ms: u64) -> Result<(), DiskError> {
        match self.begin(now_ms) {
            Err(error) if error.is_no_space() => {
                tracing::error!(
                    "cannot write the audit log now, events are lost until that works: {error}"
                );
                Ok(())
            }
            begun => begun,
        }
    }

    /// Opens or creates the file.
    fn begin(&mut self, now_ms: u64) -> Result<(), DiskError> {
        let path = self.dir.join(FILE);
        let is_there = self.disk.exists(&path)?;
        let file = if is_there {
            self.disk.open(&path)?
        } else {
            self.disk.create(&path)?
        };
        // Also if the file exists: an earlier sync may have failed, or a crash may have come before it.
        self.disk.sync_dir(&self.dir)?;
        self.keys.renew(now_ms);
        self.seal = None;
        match found_lines(&*file, self.keys.active().is_some())? {
            Some(found) => {
                self.bytes = found.bytes;
                self.began_ms = found.began_ms.unwrap_or(now_ms);
                self.file = Some(file);
                self.is_torn = false;
                self.keys.prune(&*self.disk, &self.dir);
                Ok(())
            }
            None => self.rotate(now_ms),
        }
    }

    pub(super) fn append(
        &mut self,
        lines: &[u8],
        limits: RotationLimits,
        now_ms: u64,
    ) -> Result<(), DiskError> {
        if self.file.is_none() {
            self.begin(now_ms)?;
        }
        self.cut_torn_end()?;
        let is_full = self.bytes + lines.len() as u64 > limits.bytes_max;
        let is_old = now_ms.saturating_sub(self.began_ms) >= limits.interval_ms;
        if self.bytes > 0 && (is_full || is_old) {
            self.rotate(now_ms)?;
        }
        if self.bytes == 0 {
            self.began_ms = now_ms;
        }
        if let Err(error) = self.prune(limits.prune_age_ms, now_ms) {
            tracing::error!("cannot remove old files of the audit log: {error}");
        }
        let sealed = self.seal(lines);
        let written = sealed.as_deref().unwrap_or(lines);
        let file = self.file.as_ref().expect("it was opened above");
        let result = file
            .write_at(written, self.bytes)
            .and_then(|()| file.sync_data());
        match result {
            Ok(()) => self.bytes += written.len() as u64,
            Err(_) => (self.is_torn, self.seal) = (true, None),
        }
        result
    }

    /// Returns the records of encrypted lines, with a header in a new file; `None` if the lines are in plain text.
    fn seal(&mut self, lines: &[u8]) -> Option<Vec<u8>> {
        let key = self.keys.active()?;
        let mut out = Vec::new();
        if self.bytes == 0 {
            out.extend_from_slice(&header(self.began_ms));
        }
        let seal = self.seal.take().filter(|seal| seal.key_id() == key.id());
        let mut seal = seal.unwrap_or_else(|| AuditSeal::begin(&key, &mut out));
        seal.seal(lines, &mut out);
        self.seal = Some(seal);
        Some(out)
    }

    /// Removes what a failed write or sync has left, as its lines are counted as lost.
    fn cut_torn_end(&mut self) -> Result<(), DiskError> {
        if self.is_torn
            && let Some(file) = &self.file
        {
            file.set_len(self.bytes)?;
            self.is_torn = false;
        }
        Ok(())
    }

    /// Removes the older files that are too old, from time to time.
    fn prune(&mut self, age_ms: u64, now_ms: u64) -> Result<(), DiskError> {
        if age_ms == 0 || now_ms.abs_diff(self.pruned_ms) < PRUNE_PAUSE_MS {
            return Ok(());
        }
        self.pruned_ms = now_ms;
        // The last line of a file is no newer than the first one of the file after it.
        let mut next_began_ms = self.began_ms;
        for number in 1..=self.files_max {
            let path = self.path(number);
            if !self.disk.exists(&path)? {
                continue;
            }
            if now_ms.saturating_sub(next_began_ms) >= age_ms {
                self.disk.remove(&path)?;
                continue;
            }
            let file = self.disk.open(&path)?;
            next_began_ms = began_ms(&*file)?.unwrap_or(next_began_ms);
        }
        Ok(())
    }

    /// Returns the path of a file; 0 is the current one.
    fn path(&self, number: u32) -> PathBuf {
        let name = match number {
            0 => FILE.to_owned(),
            number => format!("{FILE}.{number}"),
        };
        self.dir.join(name)
    }

    /// Rotates the files. If a step fails the older ones stay, and the next attempt continues.
    fn rotate(&mut self, now_ms: u64) -> Result<(), DiskError> {
        let new_path = self.dir.join(NEW_FILE);
        let new = self.disk.create(&new_path)?;
        // Only up to the first gap, which a failed attempt has left: the last file is removed if there is no gap.
        let mut free = 0;
        while free < self.files_max && self.disk.exists(&self.path(free))? {
            free += 1;
        }
        for number in (0..free).rev() {
            self.disk
                .rename(&self.path(number), &self.path(number + 1))?;
        }
        self.disk.rename(&new_path, &self.path(0))?;
        // If the sync fails, the next attempt opens the new file and repeats the sync.
        (self.file, self.seal) = (None, None);
        (self.bytes, self.began_ms) = (0, now_ms);
        self.disk.sync_dir(&self.dir)?;
        (self.file, self.is_torn) = (Some(new), false);
        self.keys.renew(now_ms);
        self.keys.prune(&*self.disk, &self.dir);
        Ok(())
    }
}

/// Returns the lines of a file to which more can be added; `None` if it is of the other kind, or its end is damaged.
fn found_lines(file: &dyn File, encrypts: bool) -> Result<Option<FoundLines>, DiskError> {
    let bytes = file.len()?;
    if bytes == 0 {
        return Ok(Some(FoundLines {
            bytes,
            began_ms: None,
        }));
    }
    let start = start(file)?;
    if is_encrypted(&start) != encrypts {
        return Ok(None);
    }
    if !encrypts {
        return Ok(Some(FoundLines {
            bytes: bytes + end_line(file, bytes)?,
            began_ms: first_time(file, bytes)?,
        }));
    }
    let began_ms = began_ms(file)?;
    let mut records = records(file)?;
    while let Ok(Some(_)) = records.next() {}
    let is_whole = began_ms.is_some() && HEADER_BYTES as u64 + records.bytes == bytes;
    Ok(is_whole.then_some(FoundLines { bytes, began_ms }))
}

/// Returns the time of the first line of an encrypted file or one in plain text; `None` if there is none, or it is damaged.
fn began_ms(file: &dyn File) -> Result<Option<u64>, DiskError> {
    let start = start(file)?;
    match is_encrypted(&start) {
        true => Ok(start.try_into().ok().and_then(|it| check_header(&it).ok())),
        false => first_time(file, file.len()?),
    }
}

/// Returns the time of the first line, in milliseconds since 1970; `None` if there is none, or it is damaged.
fn first_time(file: &dyn File, bytes: u64) -> Result<Option<u64>, DiskError> {
    let mut start = vec![
        0;
        usize::try_from(bytes)
            .unwrap_or(usize::MAX)
            .min(LINE_BYTES_MAX)
    ];
    file.read_at(&mut start, 0)?;
    let line = start
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let line: Option<Value> = serde_json::from_slice(line).ok();
    let time = line.as_ref().and_then(|line| line["timestamp"].as_str());
    Ok(time.and_then(unix_ms_of))
}

/// Ends a line that a crash has torn, so that the next one starts on its own. Returns the number of bytes for that.
fn end_line(file: &dyn File, bytes: u64) -> Result<u64, DiskError> {
    let Some(at) = bytes.checked_sub(1) else {
        return Ok(0);
    };
    let mut last = [0];
    file.read_at(&mut last, at)?;
    if last == *b"\n" {
        return Ok(0);
    }
    file.write_at(b"\n", bytes)?;
    Ok(1)
}
