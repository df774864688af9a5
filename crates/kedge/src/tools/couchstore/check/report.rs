//! The findings of a check, as text and as JSON.

use std::fmt::Write as _;

use kedge_bucket::FileListing;
use kedge_couchstore::kv::{Disagreement, KvError};
use kedge_couchstore::{Checked, Entry, Error, Offset, Snapshot};
use serde::Serialize;

use super::super::FileError;
use super::super::header::HeaderLine;
use super::names::{FileRevision, NamedFile};

/// The number of findings after which more are only counted.
const FINDINGS_MAX: usize = 1000;

/// A finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    offset: Option<u64>,
    /// The affected document or local document.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    #[serde(rename = "expected")]
    text: String,
}

impl Finding {
    /// Damage of the file itself.
    pub(super) fn of(error: &Error) -> Self {
        let (offset, text) = match error {
            Error::Corrupt {
                offset, problem, ..
            } => (Some(offset.0), problem.to_string()),
            Error::Io(error) => (error.offset, format!("cannot be read: {}", error.source)),
            other => (None, other.to_string()),
        };
        Finding {
            offset,
            subject: None,
            text,
        }
    }

    /// A whole document with impossible content.
    pub(super) fn of_document(leaf: Offset, entry: &Entry, error: &KvError) -> Self {
        let key = entry.key().escape_ascii();
        Finding {
            offset: Some(leaf.0),
            subject: Some(format!("seqno {}, key \"{key}\"", entry.seqno())),
            text: error.to_string(),
        }
    }

    /// A local document that does not match its name.
    pub(super) fn of_local(leaf: Offset, name: &[u8], error: &KvError) -> Self {
        Finding {
            offset: Some(leaf.0),
            subject: Some(format!("local document \"{}\"", name.escape_ascii())),
            text: error.to_string(),
        }
    }

    /// A finding about a file as a whole.
    pub(super) fn of_file(expected: String) -> Self {
        Finding {
            offset: None,
            subject: None,
            text: expected,
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        if let Some(offset) = self.offset {
            let _ = write!(text, "at byte {offset}: ");
        }
        if let Some(subject) = &self.subject {
            let _ = write!(text, "{subject}: ");
        }
        text + &self.text
    }
}

/// The report of a file.
#[derive(Debug)]
pub(super) struct FileReport {
    pub(super) named: NamedFile,
    header: Option<HeaderLine>,
    /// The contents of a catalog.
    pub(super) lists: Option<String>,
    /// The checked parts of the newest commit.
    checked: Checked,
    commits: u64,
    pub(super) file_bytes: u64,
    findings: Vec<Finding>,
    /// The number of findings that are not kept.
    more: u64,
    notes: Vec<String>,
    error: Option<String>,
}

impl FileReport {
    pub(super) fn new(named: &NamedFile) -> Self {
        let unlisted = format!("{} does not list this file", FileListing::FILE);
        FileReport {
            named: named.clone(),
            header: None,
            lists: None,
            checked: Checked::default(),
            commits: 0,
            file_bytes: 0,
            findings: Vec::new(),
            more: 0,
            notes: named.is_unlisted.then_some(unlisted).into_iter().collect(),
            error: None,
        }
    }

    pub(super) fn opened(&mut self, newest: &Snapshot) -> Result<(), Error> {
        self.file_bytes = newest.file_bytes()?;
        self.header = Some(HeaderLine::new(newest));
        let found_at = newest.header().offset().0;
        if let Some(committed_at) = self.named.committed_at.filter(|at| found_at < *at) {
            self.damage(Finding {
                offset: Some(found_at),
                subject: None,
                text: format!(
                    "expected a commit at byte {committed_at}, which {} lists: the file was cut, or is an older copy",
                    FileListing::FILE
                ),
            });
        }
        Ok(())
    }

    pub(super) fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    pub(super) fn checked(&mut self, checked: &Checked) {
        if self.commits == 0 {
            self.checked = *checked;
        }
        self.commits += 1;
    }

    pub(super) fn damage(&mut self, finding: Finding) {
        if self.findings.len() >= FINDINGS_MAX {
            self.more += 1;
        } else if !self.findings.contains(&finding) {
            // Commits share most of their nodes, so older ones have the same findings.
            self.findings.push(finding);
        }
    }

    pub(super) fn notes(&mut self, disagreements: &[Disagreement]) {
        // Only for the newest commit: older ones are history.
        if self.commits == 1 {
            let texts = disagreements.iter().map(ToString::to_string);
            self.notes.extend(texts);
        }
    }

    /// Notes that the check could not go on.
    pub(super) fn failed(&mut self, error: &FileError) {
        match error {
            FileError::Store(error) if error.is_damage() => self.damage(Finding::of(error)),
            error => self.error = Some(error.to_string()),
        }
    }

    pub(super) fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    fn damages(&self) -> u64 {
        self.findings.len() as u64 + self.more
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("{}: ", self.named.path.display());
        text.push_str(match (&self.error, self.is_sound()) {
            (Some(_), true) => "cannot be read",
            (_, false) => "DAMAGED",
            (None, true) => "ok",
        });
        if let Some(header) = &self.header {
            let Checked {
                live,
                deleted,
                locals,
                nodes,
                body_bytes,
                ..
            } = self.checked;
            let _ = write!(
                text,
                ", version {}, {live} documents, {deleted} tombstones, {locals} local documents, {nodes} nodes, \
                 {body_bytes} bytes of bodies",
                header.version()
            );
        }
        if let Some(lists) = &self.lists {
            let _ = write!(text, ", lists {lists}");
        }
        if self.commits > 1 {
            let _ = write!(text, ", {} commits", self.commits);
        }
        text.push('\n');
        if let Some(said) = self.said_of_revision() {
            let _ = writeln!(text, "  {said}");
        }
        for finding in &self.findings {
            let _ = writeln!(text, "  {}", finding.text());
        }
        if self.more > 0 {
            let _ = writeln!(text, "  and {} more", self.more);
        }
        for note in &self.notes {
            let _ = writeln!(text, "  note: {note}");
        }
        if let Some(error) = &self.error {
            let _ = writeln!(text, "  {error}");
        }
        text
    }

    fn said_of_revision(&self) -> Option<String> {
        let revision = self.named.revision.as_ref()?;
        let newest = revision.newest?;
        let whose = match revision.vbucket() {
            Some(vbucket) => format!("vBucket {vbucket}"),
            None => revision.name.clone(),
        };
        Some(if revision.revision == newest {
            format!("{whose}: revision {newest}, the newest")
        } else {
            format!(
                "{whose}: revision {}, the newest is {newest}",
                revision.revision
            )
        })
    }

    pub(super) fn json(&self) -> String {
        let revision = self.named.revision.as_ref();
        let newest = revision.and_then(|it| it.newest);
        let line = FileLine {
            file: self.named.path.display().to_string(),
            ok: self.is_sound() && self.error.is_none(),
            vbucket: revision.and_then(FileRevision::vbucket),
            revision: revision.map(|it| it.revision),
            newest: newest.and_then(|newest| Some(newest == revision?.revision)),
            file_bytes: self.file_bytes,
            header: self.header.as_ref(),
            lists: self.lists.as_deref(),
            commits: self.commits,
            live: self.checked.live,
            deleted: self.checked.deleted,
            locals: self.checked.locals,
            nodes: self.checked.nodes,
            body_bytes: self.checked.body_bytes,
            damages: self.damages(),
            damage: &self.findings,
            notes: &self.notes,
            error: self.error.as_deref(),
        };
        json_line(&line)
    }
}

/// A file in the order in which its fields are printed. Counts are those of the newest commit.
#[derive(Serialize)]
struct FileLine<'a> {
    file: String,
    ok: bool,
    vbucket: Option<u16>,
    revision: Option<u64>,
    /// True if it is the newest revision in its directory.
    newest: Option<bool>,
    file_bytes: u64,
    header: Option<&'a HeaderLine>,
    /// The contents of a catalog.
    #[serde(skip_serializing_if = "Option::is_none")]
    lists: Option<&'a str>,
    commits: u64,
    live: u64,
    deleted: u64,
    locals: u64,
    nodes: u64,
    body_bytes: u64,
    damages: u64,
    damage: &'a [Finding],
    notes: &'a [String],
    error: Option<&'a str>,
}

fn json_line(line: &impl Serialize) -> String {
    let json = serde_json::to_string(line);
    json.expect("numbers, texts and lists always have a JSON text") + "\n"
}

/// The totals of all files.
#[derive(Debug, Default, Serialize)]
pub(super) struct CheckTotals {
    files: u64,
    damaged: u64,
    unreadable: u64,
    damages: u64,
    live: u64,
    deleted: u64,
    file_bytes: u64,
}

impl CheckTotals {
    pub(super) fn add(&mut self, report: &FileReport) {
        self.files += 1;
        self.damaged += u64::from(!report.is_sound());
        self.unreadable += u64::from(report.error.is_some());
        self.damages += report.damages();
        self.live += report.checked.live;
        self.deleted += report.checked.deleted;
        self.file_bytes += report.file_bytes;
    }

    pub(super) fn text(&self) -> String {
        format!(
            "{} files: {} damaged, {} not readable; {} documents, {} tombstones, {} bytes\n",
            self.files, self.damaged, self.unreadable, self.live, self.deleted, self.file_bytes
        )
    }

    pub(super) fn json(&self) -> String {
        #[derive(Serialize)]
        struct CheckTotalsLine<'a> {
            total: &'a CheckTotals,
        }
        json_line(&CheckTotalsLine { total: self })
    }

    /// Returns the exit code: damage takes precedence over unreadable files.
    pub(super) const fn exit_code(&self) -> u8 {
        if self.damaged > 0 {
            1
        } else if self.unreadable > 0 {
            2
        } else {
            0
        }
    }
}
