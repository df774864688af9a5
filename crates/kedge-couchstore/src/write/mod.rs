//! Writing: batches, local documents, commits, rollbacks.
//!
//! Invariants:
//! * A header points only at bytes that are durable: all is synced before the header's type byte is set, and that is
//!   synced before a commit returns (couchstore file format, section 4.3).
//! * Nothing of a file is overwritten but the type byte of a block. So readers need no lock.
//! * What was not committed is not in the file, as far as any reader can tell.
//! * After an error of the disk the writer refuses everything: what is in the file is found out by opening it again.

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

use crate::file::shared::Shared;
use crate::format::entry::Fields;
use crate::format::header::Header;
use crate::tree::build::NodeSizes;
use crate::{ContentMeta, Error, Offset, Options, Snapshot};
use append::Appender;

pub use batch::{Body, Mutation};
pub use create::Create;
pub use locals::LocalChange;

/// Appends to a couchstore file. One at a time may write to a file; readers do not mind it.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    pub(crate) out: Appender,
    /// The newest header in the file.
    committed: Arc<Header>,
    /// Headers that are in the file and not durable, of which nobody can tell that they are headers.
    unsynced: Vec<Offset>,
    /// The header to come.
    pub(crate) draft: Header,
    /// Whether the header to come differs from the newest one.
    pub(crate) changed: bool,
    sizes: NodeSizes,
}

/// What a mutation of a batch did.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// The mutation's place in the batch.
    pub index: usize,
    /// Bytes on disk of its body.
    pub disk_bytes: u32,
    /// What it replaced.
    pub old: Option<OldVersion<'a>>,
}

/// A version of a document that was replaced.
#[derive(Debug, Clone, Copy)]
pub struct OldVersion<'a> {
    fields: Fields,
    rev_meta: &'a [u8],
}

impl OldVersion<'_> {
    /// Its seqno.
    #[must_use]
    pub fn seqno(&self) -> Seqno {
        Seqno(self.fields.seqno)
    }

    /// Its revision.
    #[must_use]
    pub fn rev(&self) -> RevSeqno {
        RevSeqno(self.fields.rev)
    }

    /// Whether it was a tombstone.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.fields.deleted
    }

    /// What its body was.
    #[must_use]
    pub fn content_meta(&self) -> ContentMeta {
        ContentMeta(self.fields.content_meta)
    }

    /// Bytes on disk of its body.
    #[must_use]
    pub fn disk_bytes(&self) -> u32 {
        self.fields.body_bytes
    }

    /// Its private metadata.
    #[must_use]
    pub fn rev_meta(&self) -> &[u8] {
        self.rev_meta
    }
}

impl Writer {
    /// Opens a file to append to it, and makes its newest header durable, in case that it was found in the kernel's
    /// memory only. A file without a byte gets its first header.
    ///
    /// What is behind the newest header, of a commit that did not finish, stays where it is and is never read.
    ///
    /// # Errors
    /// What [`Snapshot::open`] gives, or the disk.
    pub fn open(disk: &dyn Disk, path: &Path, options: &Options) -> Result<Self, Error> {
        if disk.len(path)? == 0 {
            return create::at_start(disk.open(path)?, path, &Create::default(), options);
        }
        let (shared, found) = Shared::open(disk, path, options)?;
        // A lone type byte at the end would make the block look like a header for ever: it is written again.
        let lone = found.file_bytes % crate::limits::BLOCK_BYTES == 1;
        let position = found.file_bytes - u64::from(lone);
        let mut writer = Writer::new(shared, found.header, position);
        for block in found.damaged {
            writer
                .out
                .set_block_type(block, crate::format::block::DATA)?;
        }
        let newest = writer.committed.offset;
        // Written again, as a kernel that failed to sync it once may believe that it is on the disk.
        writer
            .out
            .set_block_type(newest, crate::format::block::HEADER)?;
        writer.out.sync()?;
        Ok(writer)
    }

    /// Goes on at the end of the file of `snapshot`, sharing its handle and its nodes, without looking for the newest
    /// header and without a sync: cheap enough for one commit. What comes behind the snapshot's header is never part of
    /// the file again.
    ///
    /// Only for a header that this process knows to be durable, as [`Writer::open`] or [`Writer::commit`] made it, and
    /// that nobody wrote a commit behind that counts.
    ///
    /// # Errors
    /// Those of the disk.
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

    fn new(shared: Arc<Shared>, header: Header, position: u64) -> Self {
        Writer {
            out: Appender::new(Arc::clone(&shared), position),
            shared,
            draft: header.clone(),
            committed: Arc::new(header),
            unsynced: Vec::new(),
            changed: false,
            sizes: NodeSizes::UPDATE,
        }
    }

    /// The newest header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.committed
    }

    /// The file as it was committed last. It shares this writer's cache of nodes.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(Arc::clone(&self.shared), Arc::clone(&self.committed))
    }

    /// Bytes that the file has, or will have when all was written.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.out.position()
    }

    /// The highest seqno, with what is not committed.
    #[must_use]
    pub fn update_seqno(&self) -> Seqno {
        self.draft.update_seqno
    }

    /// Whether there is something to commit.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        self.changed
    }

    /// Sets the purge seqno of the next commit.
    pub fn set_purge_seqno(&mut self, seqno: Seqno) {
        self.changed |= self.draft.purge_seqno != seqno;
        self.draft.purge_seqno = seqno;
    }

    /// Raises the update seqno of the next commit, where the highest seqno has no document.
    pub fn raise_update_seqno(&mut self, seqno: Seqno) {
        self.changed |= self.draft.update_seqno < seqno;
        self.draft.update_seqno = self.draft.update_seqno.max(seqno);
    }

    /// Forgets everything since the last commit.
    pub fn give_up(&mut self) {
        self.draft = (*self.committed).clone();
        self.changed = false;
    }

    /// Makes what was written so far durable without a commit, so that a later one has less to wait for.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.out.write_all()?;
        self.out.sync()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Nodes of what was not written are in the cache under places that the next writer will write other nodes to.
        if self.changed || !self.unsynced.is_empty() || !self.out.is_settled() {
            self.shared.cache().clear();
        }
    }
}
