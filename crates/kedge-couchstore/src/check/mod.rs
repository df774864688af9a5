//! Checking all that a header reaches: what reading relies on, and what it takes on trust as looking costs too much.
//!
//! Three walks: the local tree, the tree by id, and the tree by seqno with the bodies. What must hold:
//! * Memory is bounded: a path of nodes, what is read ahead, and two sums. Nothing grows with the file.
//! * Time is bounded by the file's size, also for a hostile file: leaves are visited in ascending order of their keys,
//!   bodies are read until they are more than the file can have, and after [`DAMAGES_MAX`] finds the check ends.
//! * Damage in one place does not hide damage in another: what lies below a bad pointer is left out, the rest goes on.

mod differences;
mod sum;
#[cfg(test)]
mod tests;
mod walk;

use std::ops::ControlFlow;

use kedge_disk::Operation;

use self::sum::Digest;
use self::walk::walk;
use crate::file::window::Window;
use crate::tree::{ById, BySeqno, Local};
use crate::{Entry, Error, Form, Offset, Problem, Snapshot};

/// After so many finds a check ends: the file is beyond repair, and a hostile one must not keep it busy.
const DAMAGES_MAX: u32 = 1000;
/// How far ahead leaves and bodies are read, in bytes.
const AHEAD_BYTES_MAX: usize = 512 << 10;

/// What a check of a snapshot went through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Checked {
    /// Documents that are not tombstones.
    pub live: u64,
    /// Tombstones.
    pub deleted: u64,
    /// Local documents.
    pub locals: u64,
    /// Nodes of all three trees.
    pub nodes: u64,
    /// Bytes on disk of bodies.
    pub body_bytes: u64,
}

/// What a check tells as it goes.
pub trait CheckObserver {
    /// So many more entries were gone through. Each document counts twice, as both trees have it.
    fn progress(&mut self, entries: u64) {
        let _ = entries;
    }

    /// Something is wrong, or cannot be read. The check goes on with what can still be looked at, if it is told to.
    fn damage(&mut self, damage: Error) -> ControlFlow<()>;

    /// A document or tombstone whose body is sound, in the order of seqnos. `leaf` is where the tree has it; the body
    /// is decompressed where the store compressed it.
    fn document(&mut self, leaf: Offset, entry: &Entry, body: Option<&[u8]>) {
        let _ = (leaf, entry, body);
    }

    /// A local document. All of them come before the first document.
    fn local(&mut self, leaf: Offset, name: &[u8], value: &[u8]) {
        let _ = (leaf, name, value);
    }
}

impl Snapshot {
    /// Walks everything: nodes, their order, sums and sizes; that both trees say the same; every body.
    ///
    /// `progress` is told how many entries of the two trees were gone through so far: each document counts twice.
    ///
    /// # Errors
    /// The first damage that is found; those of the disk.
    pub fn check(&self, progress: &mut dyn FnMut(u64)) -> Result<Checked, Error> {
        let mut first = First {
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

    /// As [`Snapshot::check`], but damage is told to `observer`, which also gets to see what is sound. Counts are those
    /// of what could be gone through.
    ///
    /// # Errors
    /// Those of the disk that are not about reading one place.
    pub fn check_all(&self, observer: &mut dyn CheckObserver) -> Result<Checked, Error> {
        let mut check = Check {
            snapshot: self,
            observer,
            checked: Checked::default(),
            damages: 0,
        };
        match check.run() {
            Err(Stop::Disk(error)) => Err(error),
            Ok(()) | Err(Stop::Enough) => Ok(check.checked),
        }
    }
}

/// Ends at the first damage.
struct First<'a> {
    progress: &'a mut dyn FnMut(u64),
    entries: u64,
    damage: Option<Error>,
}

impl CheckObserver for First<'_> {
    fn progress(&mut self, entries: u64) {
        self.entries += entries;
        (self.progress)(self.entries);
    }

    fn damage(&mut self, damage: Error) -> ControlFlow<()> {
        self.damage = Some(damage);
        ControlFlow::Break(())
    }
}

/// Why a check ends early.
enum Stop {
    /// Enough is known.
    Enough,
    /// The disk fails.
    Disk(Error),
}

/// A check under way.
struct Check<'a> {
    snapshot: &'a Snapshot,
    observer: &'a mut dyn CheckObserver,
    checked: Checked,
    damages: u32,
}

impl Check<'_> {
    fn run(&mut self) -> Result<(), Stop> {
        let header = self.snapshot.header().clone();
        walk::<Local>(self, header.local, &mut |check, leaf, _, entry| {
            check.checked.locals += 1;
            check.observer.local(leaf, entry.key, entry.value);
            Ok(())
        })?;
        let digest = Digest::default();
        let mut by_id = sum::Sum::default();
        let id_is_whole = walk::<ById>(self, header.by_id, &mut |check, _, node, entry| {
            let entry = Entry::from_id(node, &entry);
            by_id.add(digest.of(&entry));
            check.count(&entry);
            Ok(())
        })?;
        let mut by_seqno = sum::Sum::default();
        let mut bodies = Bodies::default();
        let seqno_is_whole = walk::<BySeqno>(self, header.by_seqno, &mut |check, leaf, n, e| {
            let entry = Entry::from_seqno(n, &e);
            by_seqno.add(digest.of(&entry));
            if entry.seqno() > header.update_seqno {
                let problem = Problem::SeqnoAbove {
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

    /// Tells of a damaged place.
    fn tell(&mut self, at: Offset, problem: Problem) -> Result<(), Stop> {
        self.tell_error(self.snapshot.shared().corrupt(at, problem))
    }

    /// Tells of an error, if it is about one place of the file.
    fn tell_error(&mut self, error: Error) -> Result<(), Stop> {
        let is_local = match &error {
            Error::Corrupt { .. } => true,
            Error::Io(error) => error.op == Operation::Read,
            _ => false,
        };
        if !is_local {
            return Err(Stop::Disk(error));
        }
        self.damages += 1;
        match self.observer.damage(error) {
            ControlFlow::Continue(()) if self.damages < DAMAGES_MAX => Ok(()),
            _ => Err(Stop::Enough),
        }
    }
}

/// Reading bodies in the order of seqnos, which is about the one in which they lie.
struct Bodies {
    window: Window,
    bytes: u64,
    /// Whether entries share bodies, so that there may be no end of them.
    overlap: bool,
}

impl Default for Bodies {
    fn default() -> Self {
        Bodies {
            window: Window::ahead(AHEAD_BYTES_MAX),
            bytes: 0,
            overlap: false,
        }
    }
}

impl Bodies {
    fn read(&mut self, check: &mut Check<'_>, leaf: Offset, entry: &Entry) -> Result<(), Stop> {
        if self.overlap {
            return Ok(());
        }
        let end = check.snapshot.header().offset();
        let (at, disk_bytes) = (entry.fields().body, entry.fields().body_bytes);
        let none = at == 0 && disk_bytes == 0;
        if !none && (at == 0 || at >= end.0) {
            return check.tell(leaf, Problem::BodyPointer(at));
        }
        self.bytes += u64::from(disk_bytes);
        if self.bytes > end.0 {
            self.overlap = true;
            return check.tell(leaf, Problem::BodiesOverlap(self.bytes));
        }
        let body = (check.snapshot).body_through(&mut self.window, entry, Form::Plain);
        match body {
            Ok(body) => {
                check.observer.document(leaf, entry, body.as_deref());
                Ok(())
            }
            Err(error) => check.tell_error(error),
        }
    }
}
