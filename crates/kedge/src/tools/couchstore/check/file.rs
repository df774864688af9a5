//! The check of one file.

use std::ops::ControlFlow;

use kedge_couchstore::kv::{FileAudit, KvError, VBSTATE_NAME};
use kedge_couchstore::{CheckObserver, Entry, Error, Offset, OnDamage, Snapshot};

use super::super::FileError;
use super::super::keyrings::FileKeys;
use super::CheckProgress;
use super::report::{FileReport, Finding};

/// Checks a file as far as it can be read, and adds all findings to the report.
pub(super) fn check(
    report: &mut FileReport,
    keys: &mut FileKeys,
    every_header: bool,
    shown: &mut CheckProgress,
) {
    if let Err(error) = try_check(report, keys, every_header, shown) {
        report.failed(&error);
    }
}

fn try_check(
    report: &mut FileReport,
    keys: &mut FileKeys,
    every_header: bool,
    shown: &mut CheckProgress,
) -> Result<(), FileError> {
    let path = &report.named.path.clone();
    let newest = match keys.open(path, OnDamage::Refuse) {
        // The apparent newest header is damaged: that is reported, and the one before it is checked.
        Err(FileError::Store(error @ Error::Corrupt { .. })) => {
            report.damage(Finding::of(&error));
            keys.open(path, OnDamage::Recover)?
        }
        opened => opened?,
    };
    report.opened(&newest)?;
    check_commit(report, &newest, shown)?;
    if !every_header {
        return Ok(());
    }
    for older in newest.history().skip(1) {
        match older {
            Ok(older) => check_commit(report, &older, shown)?,
            Err(error) if error.is_damage() => report.damage(Finding::of(&error)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn check_commit(
    report: &mut FileReport,
    snapshot: &Snapshot,
    shown: &mut CheckProgress,
) -> Result<(), FileError> {
    let header = snapshot.header();
    let entries = header.live_count().saturating_add(header.deleted_count());
    shown.expect(entries.saturating_mul(2));
    // A file without the state of a vBucket has another use: the meaning of its documents is unknown.
    let state = snapshot.local(VBSTATE_NAME);
    let mut watch = FindingRecorder {
        audit: matches!(state, Ok(Some(_))).then(|| FileAudit::new(header.update_seqno())),
        report,
        shown,
    };
    let checked = snapshot.check_all(&mut watch)?;
    let audit = watch.audit;
    report.checked(&checked);
    if let Some(audit) = audit.filter(|_| report.is_sound()) {
        report.notes(&audit.disagreements());
    }
    Ok(())
}

/// Records the findings of a check, and checks the documents that are whole.
struct FindingRecorder<'a> {
    audit: Option<FileAudit>,
    report: &'a mut FileReport,
    shown: &'a CheckProgress,
}

impl CheckObserver for FindingRecorder<'_> {
    fn progress(&mut self, entries: u64) {
        self.shown.advance(entries);
    }

    fn damage(&mut self, damage: Error) -> ControlFlow<()> {
        self.report.damage(Finding::of(&damage));
        ControlFlow::Continue(())
    }

    fn document(&mut self, leaf: Offset, entry: &Entry, body: Option<&[u8]>) {
        let result = self.audit.as_mut().map(|it| it.document(entry, body));
        if let Some(Err(error)) = result {
            self.report
                .damage(Finding::of_document(leaf, entry, &error));
        }
    }

    fn local(&mut self, leaf: Offset, name: &[u8], value: &[u8]) {
        let result: Option<Result<(), KvError>> =
            self.audit.as_mut().map(|it| it.local(name, value));
        if let Some(Err(error)) = result {
            self.report.damage(Finding::of_local(leaf, name, &error));
        }
    }
}
