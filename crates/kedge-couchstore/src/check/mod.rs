//! The check of everything that a header refers to, including properties that reads take on trust because their
//! validation is expensive.
//!
//! It walks the local tree, the tree by id, and the tree by seqno with the bodies. Invariants:
//! * Memory is bounded by a path of nodes, the read-ahead buffers and two sums, independent of the file's size.
//! * Time is bounded by the file's size, also for a hostile file: leaves are visited in ascending order of their keys,
//!   bodies are read until they exceed the size of the file, and the check ends after [`DAMAGES_MAX`] findings.
//! * Damage in one place does not hide damage in another: the check skips the subtree of a bad pointer and continues.

mod differences;
mod sum;
#[cfg(test)]
mod tests;
mod walk;

use std::ops::ControlFlow;

use kedge_disk::Operation;

use self::sum::EntryHash;
use self::walk::walk;
use crate::file::window::ReadWindow;
use crate::tree::{ById, BySeqno, Local};
use crate::{BodyForm, DamageKind, Entry, Error, Offset, Snapshot};

/// Number of findings after which a check ends: the file is beyond repair, and a hostile one must not keep it busy.
const DAMAGES_MAX: u32 = 1000;
/// Read-ahead for leaves and bodies, in bytes.
const AHEAD_BYTES_MAX: usize = 512 << 10;

/// The counts of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Checked {
    /// Number of documents that are not tombstones.
    pub live: u64,
    /// Number of tombstones.
    pub deleted: u64,
    /// Number of local documents.
    pub locals: u64,
    /// Number of nodes of all three trees.
    pub nodes: u64,
    /// Size of the bodies, in bytes on disk.
    pub body_bytes: u64,
}

/// An observer of a check.
pub trait CheckObserver {
    /// Called after each `entries` further entries. Each document counts twice, because both trees have it.
    fn progress(&mut self, entries: u64) {
        let _ = entries;
    }

    /// Called for damage and unreadable data. The check continues with the rest of the file unless the result ends it.
    fn damage(&mut self, damage: Error) -> ControlFlow<()>;

    /// Called for each document and tombstone with a sound body, in the order of seqnos. `leaf` is the offset of the
    /// tree's leaf. The body is decompressed if the store compressed it.
    fn document(&mut self, leaf: Offset, entry: &Entry, body: Option<&[u8]>) {
        let _ = (leaf, entry, body);
    }

    /// Called for each local document, before the first document.
    fn local(&mut self, leaf: Offset, name: &[u8], value: &[u8]) {
        let _ = (leaf, name, value);
    }
}

impl Snapshot {
    /// Checks the whole file: nodes, their order, sums and sizes; the agreement of the two trees; every body.
    ///
    /// `progress` receives the number of entries of the two trees checked so far: each document counts twice.
    ///
    /// # Errors
    /// The first damage; disk errors.
    pub fn check(&self, progress: &mut dyn FnMut(u64)) -> Result<Checked, Error> {
        let mut first = FirstDamage {
            progress,
            entries: 0,
            damage: None,
        };
        let checked = self.check_all(&mut first)?;
        match first.damage {
            Some(damage) => Err(damage),
            None => Ok(checked),
        }
    }

    /// Checks the file like [`Snapshot::check`], but reports damage to `observer`, which also receives the sound
    /// documents. The counts are those of the readable parts.
    ///
    /// # Errors
    /// Disk errors other than failed reads.
    pub fn check_all(&self, observer: &mut dyn CheckObserver) -> Result<Checked, Error> {
        let mut check = CheckRun {
            snapshot: self,
            observer,
            checked: Checked::default(),
            damages: 0,
        };
        match check.run() {
            Err(CheckEnd::Disk(error)) => Err(error),
            Ok(()) | Err(CheckEnd::Enough) => Ok(check.checked),
        }
    }
}

/// An observer that ends the check at the first damage.
struct FirstDamage<'a> {
    progress: &'a mut dyn FnMut(u64),
    entries: u64,
    damage: Option<Error>,
}

impl CheckObserver for FirstDamage<'_> {
    fn progress(&mut self, entries: u64) {
        self.entries += entries;
        (self.progress)(self.entries);
    }

    fn damage(&mut self, damage: Error) -> ControlFlow<()> {
        self.damage = Some(damage);
        ControlFlow::Break(())
    }
}

/// The reason why a check ends early.
enum CheckEnd {
    /// The observer ended it.
    Enough,
    /// A disk error.
    Disk(Error),
}

/// A running check.
struct CheckRun<'a> {
    snapshot: &'a Snapshot,
    observer: &'a mut dyn CheckObserver,
    checked: Checked,
    damages: u32,
}

impl CheckRun<'_> {
    fn run(&mut self) -> Result<(), CheckEnd> {
        let header = self.snapshot.header().clone();
        walk::<Local>(self, header.local, &mut |check, leaf, _, entry| {
            check.checked.locals += 1;
            check.observer.local(leaf, entry.key, entry.value);
            Ok(())
        })?;
        let digest = EntryHash::default();
        let mut by_id = sum::SetHash::default();
        let id_is_whole = walk::<ById>(self, header.by_id, &mut |check, _, node, entry| {
            let entry = Entry::from_id(node, &entry);
            by_id.add(digest.of(&entry));
            check.count(&entry);
            Ok(())
        })?;
        let mut by_seqno = sum::SetHash::default();
        let mut bodies = BodyReader::default();
        let seqno_is_whole = walk::<BySeqno>(self, header.by_seqno, &mut |check, leaf, n, e| {
            let entry = Entry::from_seqno(n, &e);
            by_seqno.add(digest.of(&entry));
            if entry.seqno() > header.update_seqno {
                let problem = DamageKind::SeqnoAbove {
                    found: entry.seqno().0,
                    newest: header.update_seqno.0,
                };
                check.tell(leaf, problem)?;
            }
            bodies.read(check, leaf, &entry)
        })?;
        if id_is_whole && seqno_is_whole && by_id != by_seqno {
            differences::find(self)?;
        }
        Ok(())
    }

    fn count(&mut self, entry: &Entry) {
        self.checked.body_bytes += u64::from(entry.disk_bytes());
        if entry.is_deleted() {
            self.checked.deleted += 1;
        } else {
            self.checked.live += 1;
        }
    }

    /// Reports damage.
    fn tell(&mut self, at: Offset, problem: DamageKind) -> Result<(), CheckEnd> {
        self.tell_error(self.snapshot.shared().corrupt(at, problem))
    }

    /// Reports an error, if it concerns one place in the file. Other errors end the check.
    fn tell_error(&mut self, error: Error) -> Result<(), CheckEnd> {
        let is_local = match &error {
            Error::Corrupt { .. } => true,
            Error::Io(error) => error.op == Operation::Read,
            _ => false,
        };
        if !is_local {
            return Err(CheckEnd::Disk(error));
        }
        self.damages += 1;
        match self.observer.damage(error) {
            ControlFlow::Continue(()) if self.damages < DAMAGES_MAX => Ok(()),
            _ => Err(CheckEnd::Enough),
        }
    }
}

/// Reads bodies in the order of seqnos, which is approximately their order in the file.
struct BodyReader {
    window: ReadWindow,
    bytes: u64,
    /// `true` if entries share bodies, so that their number is unbounded.
    overlap: bool,
}

impl Default for BodyReader {
    fn default() -> Self {
        BodyReader {
            window: ReadWindow::ahead(AHEAD_BYTES_MAX),
            bytes: 0,
            overlap: false,
        }
    }
}

impl BodyReader {
    fn read(
        &mut self,
        check: &mut CheckRun<'_>,
        leaf: Offset,
        entry: &Entry,
    ) -> Result<(), CheckEnd> {
        if self.overlap {
            return Ok(());
        }
        let end = check.snapshot.header().offset();
        let (at, disk_bytes) = (entry.fields().body, entry.fields().body_bytes);
        let none = at == 0 && disk_bytes == 0;
        if !none && (at == 0 || at >= end.0) {
            return check.tell(leaf, DamageKind::BodyPointer(at));
        }
        self.bytes += u64::from(disk_bytes);
        if self.bytes > end.0 {
            self.overlap = true;
            return check.tell(leaf, DamageKind::BodiesOverlap(self.bytes));
        }
        let body = (check.snapshot).body_through(&mut self.window, entry, BodyForm::Plain);
        match body {
            Ok(body) => {
                check.observer.document(leaf, entry, body.as_deref());
                Ok(())
            }
            Err(error) => check.tell_error(error),
        }
    }
}
