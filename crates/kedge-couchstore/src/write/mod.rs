//! Writes: batches, local documents, commits, rollbacks.
//!
//! Invariants:
//! * A header points at durable bytes only: everything is synced before the header's type byte is set, and that is
//!   synced before a commit returns (couchstore file format, section 4.3).
//! * Only the type byte of a block is ever overwritten. So readers need no lock.
//! * Uncommitted changes are invisible for readers.
//! * After a disk error the writer rejects all operations; opening the file again shows its state.

pub(crate) mod append;
pub(crate) mod batch;
mod commit;
mod create;
mod locals;
mod save;

use std::path::Path;
use std::sync::Arc;

use kedge_disk::Disk;
use kedge_types::{RevSeqno, Seqno};

use crate::file::shared::OpenFile;
use crate::format::entry::EntryFields;
use crate::format::header::Header;
use crate::tree::build::NodeSizes;
use crate::{ContentMeta, Error, Offset, Options, Snapshot};
use append::FileAppender;

pub use batch::{Mutation, MutationBody};
pub use create::CreateOptions;
pub use locals::LocalChange;

/// Appends to a couchstore file. A file may have one writer at a time, and any number of readers.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<OpenFile>,
    pub(crate) out: FileAppender,
    /// The newest header in the file.
    committed: Arc<Header>,
    /// Headers that are written but not durable, and invisible without their type bytes.
    unsynced: Vec<Offset>,
    /// The next header.
    pub(crate) draft: Header,
    /// `true` if the next header differs from the newest one.
    pub(crate) changed: bool,
    sizes: NodeSizes,
}

/// The effect of a mutation of a batch.
#[derive(Debug, Clone, Copy)]
pub struct SavedChange<'a> {
    /// Index of the mutation in the batch.
    pub index: usize,
    /// Size of its body, in bytes on disk.
    pub disk_bytes: u32,
    /// The replaced version, if any.
    pub old: Option<OldVersion<'a>>,
}

/// A replaced version of a document.
#[derive(Debug, Clone, Copy)]
pub struct OldVersion<'a> {
    fields: EntryFields,
    rev_meta: &'a [u8],
}

impl OldVersion<'_> {
    /// Returns the seqno.
    #[must_use]
    pub fn seqno(&self) -> Seqno {
        Seqno(self.fields.seqno)
    }

    /// Returns the revision.
    #[must_use]
    pub fn rev(&self) -> RevSeqno {
        RevSeqno(self.fields.rev)
    }

    /// Returns `true` if it was a tombstone.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.fields.deleted
    }

    /// Returns the type of its body.
    #[must_use]
    pub fn content_meta(&self) -> ContentMeta {
        ContentMeta(self.fields.content_meta)
    }

    /// Returns the size of its body, in bytes on disk.
    #[must_use]
    pub fn disk_bytes(&self) -> u32 {
        self.fields.body_bytes
    }

    /// Returns its private metadata.
    #[must_use]
    pub fn rev_meta(&self) -> &[u8] {
        self.rev_meta
    }
}

impl Writer {
    /// Opens a file for appends, and makes its newest header durable, which may be in the page cache only. An empty
    /// file gets its first header.
    ///
    /// Bytes after the newest header, of an unfinished commit, stay in the file and are never read.
    ///
    /// # Errors
    /// The errors of [`Snapshot::open`], and disk errors. After [`Error::is_no_space`], the file is synced; a power
    /// failure can only take the newest header away if an earlier process failed to sync it.
    pub fn open(disk: &dyn Disk, path: &Path, options: &Options) -> Result<Self, Error> {
        if disk.len(path)? == 0 {
            return create::at_start(disk.open(path)?, path, &CreateOptions::default(), options);
        }
        let (shared, found) = OpenFile::open(disk, path, options)?;
        // A lone type byte at the end would make the block look like a header forever, so it is rewritten.
        let lone = found.file_bytes % crate::limits::BLOCK_BYTES == 1;
        let position = found.file_bytes - u64::from(lone);
        let mut writer = Writer::new(shared, found.header, position);
        match writer.rewrite_block_types(&found.damaged) {
            // Readers use the newest header although this writer does not open. Sync it, so that a power failure does
            // not take it away.
            Err(error) if error.is_no_space() => {
                writer.shared.file().sync_data()?;
                return Err(error);
            }
            rewritten => rewritten?,
        }
        writer.out.sync()?;
        Ok(writer)
    }

    /// Writes the type bytes of damaged headers, which become data, and of the newest header.
    fn rewrite_block_types(&mut self, damaged: &[Offset]) -> Result<(), Error> {
        for block in damaged {
            self.out
                .set_block_type(*block, crate::format::block::DATA)?;
        }
        let newest = self.committed.offset;
        // Rewritten, because a kernel that failed to sync it once may consider it clean.
        self.out
            .set_block_type(newest, crate::format::block::HEADER)
    }

    /// Continues at the end of the file of `snapshot`, sharing its handle and its nodes, without a search for the
    /// newest header and without a sync: cheap enough for one commit. Everything after the snapshot's header is void
    /// from then on.
    ///
    /// The header must be known to be durable, through [`Writer::open`] or [`Writer::commit`] in this process, and must
    /// not have a valid later commit.
    ///
    /// # Errors
    /// Disk errors.
    pub fn resume(snapshot: &Snapshot) -> Result<Self, Error> {
        let Snapshot { shared, header } = snapshot;
        // All chunks end before their header, so a lone type byte at the end is that of an empty block.
        let file_bytes = snapshot.file_bytes()?;
        let lone = file_bytes % crate::limits::BLOCK_BYTES == 1;
        let position = file_bytes - u64::from(lone);
        Ok(Writer::new(
            Arc::clone(shared),
            (**header).clone(),
            position,
        ))
    }

    fn new(shared: Arc<OpenFile>, header: Header, position: u64) -> Self {
        Writer {
            out: FileAppender::new(Arc::clone(&shared), position),
            shared,
            draft: header.clone(),
            committed: Arc::new(header),
            unsynced: Vec::new(),
            changed: false,
            sizes: NodeSizes::UPDATE,
        }
    }

    /// Returns the newest header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.committed
    }

    /// Returns a snapshot of the last commit. It shares this writer's node cache.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(Arc::clone(&self.shared), Arc::clone(&self.committed))
    }

    /// Returns the length of the file in bytes, including unwritten data.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.out.position()
    }

    /// Returns the highest seqno, including uncommitted changes.
    #[must_use]
    pub fn update_seqno(&self) -> Seqno {
        self.draft.update_seqno
    }

    /// Returns `true` if there are uncommitted changes.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        self.changed
    }

    /// Sets the purge seqno of the next commit.
    pub fn set_purge_seqno(&mut self, seqno: Seqno) {
        self.changed |= self.draft.purge_seqno != seqno;
        self.draft.purge_seqno = seqno;
    }

    /// Raises the update seqno of the next commit, for a highest seqno without a document.
    pub fn raise_update_seqno(&mut self, seqno: Seqno) {
        self.changed |= self.draft.update_seqno < seqno;
        self.draft.update_seqno = self.draft.update_seqno.max(seqno);
    }

    /// Discards all changes since the last commit.
    pub fn give_up(&mut self) {
        self.draft = (*self.committed).clone();
        self.changed = false;
    }

    /// Makes written data durable without a commit, so that a later one takes less time.
    ///
    /// # Errors
    /// Disk errors.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.out.write_all()?;
        self.out.sync()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Cached nodes of unwritten data are at offsets to which the next writer will write other nodes.
        if self.changed || !self.unsynced.is_empty() || !self.out.is_settled() {
            self.shared.cache().clear();
        }
    }
}
