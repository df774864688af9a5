//! The check of a directory's keyring.

use std::path::Path;

use kedge_encryption::{KEYRING_FILE, KeyringError};

use super::super::FileError;
use super::super::keyrings::{self, FileKeys};
use super::names::NamedFile;
use super::report::{FileReport, Finding};

/// Checks the keyring of a directory; `None` if there is none. Without the master key only its checksum is checked.
pub(super) fn check(dir: &Path, keys: &mut FileKeys) -> Option<FileReport> {
    let path = dir.join(KEYRING_FILE);
    let mut report = FileReport::new(&NamedFile::new(path.clone()));
    match try_check(&mut report, &path, keys) {
        Ok(true) => {}
        Ok(false) => return None,
        Err(FileError::Keyring(KeyringError::Damaged { problem, .. })) => {
            report.damage(Finding::of_file(format!("expected data keys: {problem}")));
        }
        Err(error) => report.failed(&error),
    }
    Some(report)
}

/// Returns `false` if there is no keyring.
fn try_check(report: &mut FileReport, path: &Path, keys: &mut FileKeys) -> Result<bool, FileError> {
    let Some(keyring) = keyrings::read(path)? else {
        return Ok(false);
    };
    report.file_bytes = path.metadata().map_or(0, |it| it.len());
    let master = keyring.master_name();
    match keys.masters()? {
        Some(masters) => {
            let count = keyring.unlock(masters)?.len();
            let keys = if count == 1 { "key" } else { "keys" };
            report.lists = Some(format!("{count} data {keys}"));
        }
        None => report.note(format!(
            "only its checksum was checked: its keys need the master key {master}, --encryption-master-key"
        )),
    }
    Ok(true)
}
