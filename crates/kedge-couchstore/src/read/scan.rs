//! Scans: iterators over documents in the order of seqnos or keys, and over local documents.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use kedge_types::Seqno;

use super::bodies::read_body;
use super::{BodyForm, Document, Entry, Snapshot};
use crate::Error;
use crate::file::window::ReadWindow;
use crate::format::bytes::be48;
use crate::format::pointer::Pointer;
use crate::limits::U48_MAX;
use crate::tree::cursor::Cursor;
use crate::tree::node::{Node, NodeEntry};
use crate::tree::search::{NodeReader, ReadWindows};
use crate::tree::{ById, BySeqno, Local, Tree};

/// Read-ahead for leaves and bodies, in bytes.
const AHEAD_BYTES_MAX: usize = 512 << 10;
/// Number of errors after which a scan ends even if it skips damage, because a hostile file has endless paths.
const ERRORS_MAX: u32 = 1000;

/// A walk over the leaves of one tree. It owns its read buffers, so that it can be stored beside the snapshot.
#[derive(Debug)]
struct LeafWalk<T: Tree> {
    snapshot: Snapshot,
    windows: ReadWindows,
    cursor: Cursor<T>,
    /// The end of the keys.
    end: Bound<Vec<u8>>,
    /// Number of errors that the walk may still skip.
    errors_left: u32,
    done: bool,
}

impl<T: Tree> LeafWalk<T> {
    fn new(
        snapshot: &Snapshot,
        root: Option<Pointer<T::Reduce>>,
        start: Bound<&[u8]>,
        end: Bound<Vec<u8>>,
    ) -> Result<Self, Error> {
        let mut walk = LeafWalk {
            snapshot: snapshot.clone(),
            windows: ReadWindows::scan(AHEAD_BYTES_MAX),
            cursor: Cursor::new(root),
            end,
            errors_left: 0,
            done: false,
        };
        let shared = Arc::clone(&walk.snapshot.shared);
        let mut nodes = NodeReader::new(&shared, walk.snapshot.header.offset, &mut walk.windows);
        match start {
            Bound::Included(key) => walk.cursor.seek(&mut nodes, key)?,
            Bound::Excluded(key) => walk.cursor.seek(&mut nodes, &[key, &[0]].concat())?,
            Bound::Unbounded => {}
        }
        Ok(walk)
    }

    /// Returns the result of `make` for the next entry.
    fn next<R>(
        &mut self,
        make: impl FnOnce(&Node, &NodeEntry<'_>) -> R,
    ) -> Option<Result<R, Error>> {
        if self.done {
            return None;
        }
        let shared = &*self.snapshot.shared;
        let mut nodes = NodeReader::new(shared, self.snapshot.header.offset, &mut self.windows);
        let next = match self.cursor.next(&mut nodes) {
            Ok(Some((node, entry))) => {
                let within = match &self.end {
                    Bound::Included(end) => entry.key <= &**end,
                    Bound::Excluded(end) => entry.key < &**end,
                    Bound::Unbounded => true,
                };
                within.then(|| Ok(make(node, &entry)))
            }
            Ok(None) => None,
            Err(error) => {
                // The cursor is after the pointer that it could not follow.
                self.done = self.errors_left == 0;
                self.errors_left = self.errors_left.saturating_sub(1);
                return Some(Err(error));
            }
        };
        self.done = next.is_none();
        next
    }
}

/// A scan of documents and tombstones in the order of seqnos. It ends after an error.
#[derive(Debug)]
pub struct SeqnoScan(LeafWalk<BySeqno>);

/// A scan of documents and tombstones in the order of keys. It ends after an error.
#[derive(Debug)]
pub struct IdScan(LeafWalk<ById>);

/// A scan of local documents, name and contents, in the order of names. It ends after an error.
#[derive(Debug)]
pub struct Locals(LeafWalk<Local>);

impl Iterator for SeqnoScan {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next(Entry::from_seqno)
    }
}

impl Iterator for IdScan {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next(Entry::from_id)
    }
}

impl Iterator for Locals {
    type Item = Result<(Vec<u8>, Vec<u8>), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0
            .next(|_, entry| (entry.key.to_vec(), entry.value.to_vec()))
    }
}

/// A scan with bodies. It ends after an error.
#[derive(Debug)]
pub struct DocumentScan<S> {
    scan: S,
    snapshot: Snapshot,
    form: BodyForm,
    window: ReadWindow,
    /// `true` if the scan continues after a damaged body.
    past_damage: bool,
    done: bool,
}

impl<S: Iterator<Item = Result<Entry, Error>>> Iterator for DocumentScan<S> {
    type Item = Result<Document, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let Snapshot { shared, header } = &self.snapshot;
        let error = match self.scan.next()? {
            Ok(entry) => {
                let end = header.offset;
                match read_body(shared, &mut self.window, end, &entry, self.form) {
                    Ok(body) => return Some(Ok(Document { entry, body })),
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        self.done = !self.past_damage;
        Some(Err(error))
    }
}

macro_rules! with_bodies {
    ($scan:ident) => {
        impl $scan {
            /// Makes the scan continue after damage: it skips the subtrees of a damaged node, and documents with a
            /// damaged body, and returns the errors in between. It still ends after many errors about nodes.
            #[must_use]
            pub fn past_damage(mut self) -> Self {
                self.0.errors_left = ERRORS_MAX;
                self
            }

            /// Returns the scan with bodies, which are read far ahead if their offsets are in the order of the scan.
            #[must_use]
            pub fn with_bodies(self, form: BodyForm) -> DocumentScan<$scan> {
                DocumentScan {
                    snapshot: self.0.snapshot.clone(),
                    past_damage: self.0.errors_left > 0,
                    scan: self,
                    form,
                    window: ReadWindow::ahead(AHEAD_BYTES_MAX),
                    done: false,
                }
            }
        }
    };
}
with_bodies!(SeqnoScan);
with_bodies!(IdScan);

impl Snapshot {
    /// Scans documents and tombstones with a seqno in this range, in the order of seqnos.
    ///
    /// # Errors
    /// Damage of the file, and disk errors, on the way to the first entry.
    pub fn scan_seqnos(&self, range: impl RangeBounds<Seqno>) -> Result<SeqnoScan, Error> {
        let key = |seqno: &Seqno| be48(seqno.0.min(U48_MAX)).to_vec();
        let start = range.start_bound().map(key);
        let start = match &start {
            Bound::Included(key) => Bound::Included(&**key),
            Bound::Excluded(key) => Bound::Excluded(&**key),
            Bound::Unbounded => Bound::Unbounded,
        };
        let end = match range.end_bound() {
            // All seqnos of a file are below this one.
            Bound::Excluded(seqno) if seqno.0 > U48_MAX => Bound::Unbounded,
            end => end.map(key),
        };
        let walk = LeafWalk::new(self, self.header.by_seqno, start, end)?;
        Ok(SeqnoScan(walk))
    }

    /// Scans documents and tombstones with a key in this range, in the order of keys. `..` scans all; the range of a
    /// prefix or collection extends from it to its successor.
    ///
    /// # Errors
    /// Damage of the file, and disk errors, on the way to the first entry.
    pub fn scan_ids(&self, range: impl RangeBounds<[u8]>) -> Result<IdScan, Error> {
        let end = range.end_bound().map(<[u8]>::to_vec);
        let walk = LeafWalk::new(self, self.header.by_id, range.start_bound(), end)?;
        Ok(IdScan(walk))
    }

    /// Scans all local documents.
    ///
    /// # Errors
    /// Damage of the file, and disk errors, on the way to the first one.
    pub fn locals(&self) -> Result<Locals, Error> {
        let walk = LeafWalk::new(self, self.header.local, Bound::Unbounded, Bound::Unbounded)?;
        Ok(Locals(walk))
    }
}
