//! Reading: a snapshot at a header, and what can be asked of it.
//!
//! Everything that a header reaches is immutable, so a snapshot needs no lock, blocks no writer, and stays what it was
//! while the file grows, and while its name is unlinked.

mod bodies;
mod entry;
mod get;
mod located;
mod nodes;
mod scan;

use std::path::Path;
use std::sync::Arc;

use kedge_disk::{Disk, File};

use crate::file::find;
use crate::file::shared::Shared;
use crate::file::window::Window;
use crate::format::header::Header;
use crate::{Error, Offset, Options, Problem};

pub use bodies::{Document, Form};
pub use entry::{ContentMeta, Entry};
pub use located::Located;
pub use nodes::{NodeItem, Totals, TreeKind, TreeNode, TreeNodes};
pub use scan::{Documents, IdScan, Locals, SeqnoScan};

/// A file as one of its commits left it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(crate) shared: Arc<Shared>,
    pub(crate) header: Arc<Header>,
}

impl Snapshot {
    /// Opens a file at its newest header.
    ///
    /// # Errors
    /// [`Error::NoHeader`]; [`Error::Corrupt`] if what looks like the newest header is damaged, unless `options` say
    /// to go on to an older one; [`Error::UnknownVersion`]; [`Error::KeyNeeded`]; those of the disk.
    pub fn open(disk: &dyn Disk, path: &Path, options: &Options) -> Result<Self, Error> {
        let (shared, found) = Shared::open(disk, path, options)?;
        Ok(Snapshot::new(shared, Arc::new(found.header)))
    }

    /// As [`Snapshot::open`], of a file that the caller opened in a way of its own. Nothing is written to it; `path`
    /// is what errors call it.
    ///
    /// # Errors
    /// As [`Snapshot::open`].
    pub fn of_file(file: Box<dyn File>, path: &Path, options: &Options) -> Result<Self, Error> {
        let (shared, found) = Shared::of_file(file, path, options)?;
        Ok(Snapshot::new(shared, Arc::new(found.header)))
    }

    /// Opens a file at a header that is known to be in it, without a search.
    ///
    /// # Errors
    /// [`Problem::NotAHeader`] if another or none is there; otherwise as [`Snapshot::open`].
    pub fn open_at(
        disk: &dyn Disk,
        path: &Path,
        options: &Options,
        header: &Header,
    ) -> Result<Self, Error> {
        let shared = Shared::open_at(disk, path, options, header)?;
        Ok(Snapshot::new(shared, Arc::new(header.clone())))
    }

    pub(crate) fn new(shared: Arc<Shared>, header: Arc<Header>) -> Self {
        Snapshot { shared, header }
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.shared.path()
    }

    /// Bytes that the file has now.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn file_bytes(&self) -> Result<u64, Error> {
        Ok(self.shared.file().len()?)
    }

    /// Memory that the file takes while it is open, shared with every other snapshot and the writer that have its handle,
    /// in bytes: its nodes, mostly.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.shared.memory_bytes()
    }

    /// The same file at the header that is its newest now.
    ///
    /// # Errors
    /// As [`Snapshot::open`].
    pub fn newest(&self) -> Result<Snapshot, Error> {
        let shared = &self.shared;
        let file_bytes = self.file_bytes()?;
        let found = find::newest(shared.file(), shared.path(), file_bytes, shared.on_damage())?;
        self.with_header(found.header)
    }

    /// The same file at the header before this one; `None` if this is the oldest.
    ///
    /// # Errors
    /// Damage, or those of the disk.
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

    /// The same file at the header at `offset`.
    ///
    /// # Errors
    /// [`Problem::NotAHeader`] if none is there, other damage, those of the disk.
    pub fn at(&self, offset: Offset) -> Result<Snapshot, Error> {
        let shared = &self.shared;
        let header = find::at(shared.file(), shared.path(), offset, self.file_bytes()?)?;
        self.with_header(header)
    }

    /// This snapshot and all older ones, newest first. Ends after an error.
    pub fn history(&self) -> impl Iterator<Item = Result<Snapshot, Error>> + use<> {
        std::iter::successors(Some(Ok(self.clone())), |last| {
            last.as_ref().ok()?.older().transpose()
        })
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// As [`Snapshot::body`], through a window that reads ahead or is used again.
    pub(crate) fn body_through(
        &self,
        window: &mut Window,
        entry: &Entry,
        form: Form,
    ) -> Result<Option<Vec<u8>>, Error> {
        bodies::read_body(&self.shared, window, self.header.offset, entry, form)
    }

    fn with_header(&self, header: Header) -> Result<Snapshot, Error> {
        if !self.shared.fits(&header) {
            // Nobody changes the version or encryption of a file that is there.
            return Err(self.shared.corrupt(header.offset, Problem::NotAHeader));
        }
        Ok(Snapshot::new(Arc::clone(&self.shared), Arc::new(header)))
    }
}
