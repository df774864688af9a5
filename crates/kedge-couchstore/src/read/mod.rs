//! Reads: a snapshot at a header, and its methods.
//!
//! Everything that a header refers to is immutable. So a snapshot needs no lock, blocks no writer, and stays unchanged
//! while the file grows or is unlinked.

mod bodies;
mod entry;
mod get;
mod located;
mod nodes;
mod prefix;
mod scan;

use std::path::Path;
use std::sync::Arc;

use kedge_disk::{Disk, File};

use crate::file::find;
use crate::file::shared::{self, OpenFile};
use crate::file::window::ReadWindow;
use crate::format::header::Header;
use crate::{DamageKind, Error, Offset, Options};

pub use bodies::{BodyForm, Document};
pub use entry::{ContentMeta, Entry};
pub use located::LocatedBody;
pub use nodes::{NodeItem, SubtreeTotals, TreeKind, TreeNode, TreeNodes};
pub use scan::{DocumentScan, IdScan, Locals, SeqnoScan};

/// A file at one of its commits. It is cheap to clone.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(crate) shared: Arc<OpenFile>,
    pub(crate) header: Arc<Header>,
}

impl Snapshot {
    /// Opens a file at its newest header.
    ///
    /// # Errors
    /// [`Error::NoHeader`]; [`Error::Corrupt`] if the newest header is damaged, unless `options` allow an older one;
    /// [`Error::UnknownVersion`]; [`Error::KeyNeeded`]; disk errors.
    pub fn open(disk: &dyn Disk, path: &Path, options: &Options) -> Result<Self, Error> {
        let (shared, found) = OpenFile::open(disk, path, options)?;
        Ok(Snapshot::new(shared, Arc::new(found.header)))
    }

    /// Opens a snapshot like [`Snapshot::open`], of a file that the caller has opened. Nothing is written to it; `path`
    /// appears in errors.
    ///
    /// # Errors
    /// The errors of [`Snapshot::open`].
    pub fn of_file(file: Box<dyn File>, path: &Path, options: &Options) -> Result<Self, Error> {
        let (shared, found) = OpenFile::of_file(file, path, options)?;
        Ok(Snapshot::new(shared, Arc::new(found.header)))
    }

    /// Opens a file at a known header, without a search.
    ///
    /// # Errors
    /// [`DamageKind::NotAHeader`] if another header or none is there; otherwise the errors of [`Snapshot::open`].
    pub fn open_at(
        disk: &dyn Disk,
        path: &Path,
        options: &Options,
        header: &Header,
    ) -> Result<Self, Error> {
        let shared = OpenFile::open_at(disk, path, options, header)?;
        Ok(Snapshot::new(shared, Arc::new(header.clone())))
    }

    pub(crate) fn new(shared: Arc<OpenFile>, header: Arc<Header>) -> Self {
        Snapshot { shared, header }
    }

    /// Returns the header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.shared.path()
    }

    /// Returns the name of the key of an encrypted file; `None` if the file is not encrypted.
    #[must_use]
    pub fn key_id(&self) -> Option<&str> {
        self.shared.key_id()
    }

    /// Returns the name of the key that a file needs; `None` if it is not encrypted, empty or no couchstore file. The file may be
    /// an incomplete one.
    ///
    /// # Errors
    /// Damage of the statement of the key, and disk errors.
    pub fn needed_key(disk: &dyn Disk, path: &Path) -> Result<Option<String>, Error> {
        let file = disk.open(path)?;
        let end = file.len()?;
        let metadata = shared::metadata_header(&*file, path, end)?;
        Ok(metadata.map(|metadata| metadata.key_id))
    }

    /// Returns the current length of the file, in bytes.
    ///
    /// # Errors
    /// Disk errors.
    pub fn file_bytes(&self) -> Result<u64, Error> {
        Ok(self.shared.file().len()?)
    }

    /// Returns the memory of the open file in bytes, mostly cached nodes. All snapshots and the writer with the same
    /// handle share it.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.shared.memory_bytes()
    }

    /// Returns a snapshot of the same file at its current newest header.
    ///
    /// # Errors
    /// The errors of [`Snapshot::open`].
    pub fn newest(&self) -> Result<Snapshot, Error> {
        let shared = &self.shared;
        let file_bytes = self.file_bytes()?;
        let found = find::newest(shared.file(), shared.path(), file_bytes, shared.on_damage())?;
        self.with_header(found.header)
    }

    /// Returns a snapshot of the same file at the header before this one; `None` if this is the oldest.
    ///
    /// # Errors
    /// Damage of the file, and disk errors.
    pub fn older(&self) -> Result<Option<Snapshot>, Error> {
        let shared = &self.shared;
        let found = find::older(
            shared.file(),
            shared.path(),
            &self.header,
            shared.on_damage(),
        )?;
        found.map(|header| self.with_header(header)).transpose()
    }

    /// Returns a snapshot of the same file at the header at `offset`.
    ///
    /// # Errors
    /// [`DamageKind::NotAHeader`] if there is none, other damage, and disk errors.
    pub fn at(&self, offset: Offset) -> Result<Snapshot, Error> {
        let shared = &self.shared;
        let header = find::at(shared.file(), shared.path(), offset, self.file_bytes()?)?;
        self.with_header(header)
    }

    /// Iterates over this snapshot and all older ones, newest first. The iteration ends after an error.
    pub fn history(&self) -> impl Iterator<Item = Result<Snapshot, Error>> + use<> {
        std::iter::successors(Some(Ok(self.clone())), |last| {
            last.as_ref().ok()?.older().transpose()
        })
    }

    pub(crate) fn shared(&self) -> &OpenFile {
        &self.shared
    }

    /// Reads a body like [`Snapshot::body`], through a window that reads ahead or is reused.
    pub(crate) fn body_through(
        &self,
        window: &mut ReadWindow,
        entry: &Entry,
        form: BodyForm,
    ) -> Result<Option<Vec<u8>>, Error> {
        bodies::read_body(&self.shared, window, self.header.offset, entry, form)
    }

    fn with_header(&self, header: Header) -> Result<Snapshot, Error> {
        if !self.shared.fits(&header) {
            // Version and encryption of a file never change.
            return Err(self.shared.corrupt(header.offset, DamageKind::NotAHeader));
        }
        Ok(Snapshot::new(Arc::clone(&self.shared), Arc::new(header)))
    }
}
