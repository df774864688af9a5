//! Copies of files from other nodes: a file arrives in parts, and replaces the vBucket's file when it is complete.
//!
//! Invariants:
//! * A copy has a name that no start takes for the vBucket's file until it is complete and durable.
//! * The installed file differs from its source by one commit, which has the state of the vBucket on this node, and the
//!   UUID of the reset that made place for it. By that a start knows that the log's earlier records are void.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kedge_couchstore::kv::SnapshotRange;
use kedge_couchstore::{Snapshot, Writer};
use kedge_disk::{Disk, File};
use kedge_types::{Seqno, VbId, VbUuid};
use kedge_vbucket::PersistedState;

use crate::names::copy_name;
use crate::scan::FileView;
use crate::vb_metadata::{MetadataChanges, VbMetadata};
use crate::{Storage, StorageError};

impl FileView {
    /// Returns the number of bytes of a copy of the file.
    #[must_use]
    pub fn copy_bytes(&self) -> u64 {
        self.file().prefix_bytes()
    }

    /// Returns the number of live documents and prepares.
    #[must_use]
    pub fn live_count(&self) -> u64 {
        self.file().header().live_count()
    }

    /// Returns `true` if the file is encrypted with a key of this node, so that no other node can read a copy.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.file().key_id().is_some()
    }

    /// Reads bytes of the file for a copy, within [`FileView::copy_bytes`].
    ///
    /// # Errors
    /// Disk errors.
    pub fn read_copy(&self, buf: &mut [u8], offset: u64) -> Result<(), StorageError> {
        Ok(self.file().read_prefix(buf, offset)?)
    }
}

/// A file that is being copied from another node. It is removed when it is dropped before its installation.
#[derive(Debug)]
pub struct FileCopy {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: Box<dyn File>,
    bytes: u64,
    is_installed: bool,
}

/// A complete and durable copy.
#[derive(Debug)]
pub struct CompleteCopy {
    copy: FileCopy,
    high_seqno: Seqno,
}

impl Storage {
    /// Begins a copy of a vBucket's file from another node.
    ///
    /// # Errors
    /// Disk errors.
    pub fn begin_copy(&self, vb: VbId) -> Result<FileCopy, StorageError> {
        // No other copy of this process has the number.
        let number = self.copies.fetch_add(1, Ordering::Relaxed) + 1;
        let path = self.dir.join(copy_name(vb, number));
        let file = self.disk.create(&path)?;
        Ok(FileCopy {
            disk: Arc::clone(&self.disk),
            path,
            file,
            bytes: 0,
            is_installed: false,
        })
    }

    /// Checks that a copy is a file at a consistent point, and makes its contents durable.
    ///
    /// # Errors
    /// Damage of the copy, [`StorageError::State`], and disk errors.
    pub fn complete_copy(&self, copy: FileCopy) -> Result<CompleteCopy, StorageError> {
        copy.file.sync_data()?;
        let file = Snapshot::open(&*self.disk, &copy.path, &self.options.to_open())?;
        let high_seqno = file.header().update_seqno();
        let mut document = VbMetadata::read(&file)?.document;
        let is_sound = document.check_snapshot(high_seqno) != SnapshotRange::Unusable;
        if !is_sound || document.snap_end > high_seqno || file.prefix_bytes() != copy.bytes {
            return Err(StorageError::State {
                file: copy.path.clone(),
                reason: "the copy does not end with a consistent commit".to_owned(),
            });
        }
        Ok(CompleteCopy { copy, high_seqno })
    }

    /// Replaces the vBucket's file with a copy. `state` computes the state of the vBucket on this node from that in the
    /// copy, and `reset` is the UUID of the reset in the log. A running compaction is stopped first.
    ///
    /// # Errors
    /// Damage of the copy, and disk errors. The old file stays valid then, unless [`StorageError::is_fatal`].
    pub fn install_copy(
        &self,
        vb: VbId,
        complete: CompleteCopy,
        reset: VbUuid,
        now_ns: u64,
        state: impl FnOnce(&PersistedState) -> PersistedState,
    ) -> Result<(), StorageError> {
        let mut copy = complete.copy;
        let mut writer = Writer::open(&*self.disk, &copy.path, &self.options.to_open())?;
        let file = writer.snapshot();
        let source = VbMetadata::read(&file)?;
        let none = MetadataChanges::default();
        let mut metadata = source.after(&state(&source.state(&file)?), &none);
        metadata.document.installed = Some(reset);
        // It names the nodes of the source, which was active.
        metadata.document.replication_topology = None;
        metadata.save(&none, &mut writer)?;
        writer.commit(now_ns)?;
        let _alone = self.slot(vb).maintenance().exclusive(&self.pauses);
        let mut guard = self.writer(vb);
        let (newest, bytes) = (writer.snapshot(), writer.file_bytes());
        let installed = guard.install_file(&copy.path, &newest, bytes, metadata);
        match &installed {
            Ok(()) => {
                copy.is_installed = true;
                guard.remove_left();
            }
            Err(error) => guard.failed(error),
        }
        installed
    }
}

impl FileCopy {
    /// Appends the next bytes of the file.
    ///
    /// # Errors
    /// Disk errors.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        self.file.write_at(bytes, self.bytes)?;
        // The sync at the end has less to do, and commits of other files are not delayed by much at once.
        self.file.begin_sync(self.bytes, bytes.len() as u64);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Returns the number of bytes so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for FileCopy {
    fn drop(&mut self) {
        if !self.is_installed {
            // If that fails, the next start removes it.
            let _ = self.disk.remove(&self.path);
        }
    }
}

impl CompleteCopy {
    /// Returns the highest seqno of the copy.
    #[must_use]
    pub fn high_seqno(&self) -> Seqno {
        self.high_seqno
    }
}
