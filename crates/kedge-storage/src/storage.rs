//! The set of all files of a bucket.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use kedge_couchstore::{OnDamage, Options};
use kedge_disk::{Disk, ObservedDisk};
use kedge_types::{CollectionId, VbId};

use crate::catalog::FileCatalog;
use crate::keys::FileOptions;
use crate::maintenance::StopFlag;
use crate::names::find_files;
use crate::open_files::{OpenFileLimits, OpenFiles};
use crate::slot::FileSlot;
use crate::stats::{FileFigures, StorageCounters, StorageStats};
use crate::throttle_pause::ThrottlePause;
use crate::{StorageConfig, StorageError, metered};

/// The couchstore files of a bucket, one for each vBucket that was ever written to.
///
/// All methods may be called from any thread. Writers of a vBucket's file wait for each other, and readers wait for no
/// other thread. All methods panic for vBuckets that the bucket does not have.
#[derive(Debug)]
pub struct Storage {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) options: FileOptions,
    pub(crate) open_files: OpenFiles,
    pub(crate) counters: Arc<StorageCounters>,
    pub(crate) stopping: StopFlag,
    pub(crate) pauses: ThrottlePause,
    pub(crate) catalog: FileCatalog,
    done: Arc<metered::DiskCounters>,
    /// The number of files that were copied from other nodes.
    pub(crate) copies: AtomicU64,
    slots: Box<[FileSlot]>,
}

impl Storage {
    /// Opens the files in a directory, which is created if necessary. Of several revisions of a vBucket's file the
    /// highest is valid. Lower ones, those of deleted vBuckets, and incomplete files of a crash are removed. The
    /// directory is synced, and no file of a vBucket is opened.
    ///
    /// A file that the directory's catalog lists and that is missing is an error for all operations on its vBucket,
    /// until [`Storage::quarantine`] gives it up. The same holds for a file whose newest commit is older than the one in
    /// the catalog.
    ///
    /// # Errors
    /// Disk errors.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        config: &StorageConfig,
    ) -> Result<Self, StorageError> {
        let catalog_disk = Arc::clone(&disk);
        Self::open_with_catalog_on(&*catalog_disk, disk, dir, config)
    }

    /// Opens the files like [`Storage::open`], with a separate handle of the same disk for the catalog, so that its
    /// small writes are not counted as those of files.
    ///
    /// # Errors
    /// Disk errors.
    pub fn open_with_catalog_on(
        catalog_disk: &dyn Disk,
        disk: Arc<dyn Disk>,
        dir: &Path,
        config: &StorageConfig,
    ) -> Result<Self, StorageError> {
        let done = Arc::new(metered::DiskCounters::default());
        let disk: Arc<dyn Disk> = Arc::new(ObservedDisk::new(disk, Arc::clone(&done)));
        disk.create_dir_all(dir)?;
        let stock = find_files(&*disk, dir, config.vbuckets)?;
        let (catalog, judged) = FileCatalog::open(catalog_disk, dir, &stock)?;
        let slots = stock.into_iter().zip(judged).zip(0..);
        Ok(Storage {
            disk,
            dir: dir.to_owned(),
            options: FileOptions {
                plain: Options {
                    on_damage: OnDamage::Refuse,
                    keys: Vec::new(),
                    cache_bytes_max: config.file_cache_bytes_max,
                    cache_leaves: true,
                },
                keyring: config.keyring.clone(),
            },
            open_files: OpenFiles::new(config.vbuckets, limits(config)),
            counters: Arc::default(),
            stopping: StopFlag::default(),
            pauses: ThrottlePause::default(),
            catalog,
            done,
            copies: AtomicU64::new(0),
            slots: slots
                .map(|((found, judged), vb)| FileSlot::new(VbId(vb), found, judged))
                .collect(),
        })
    }

    /// Applies the limits of open files in `config`. Surplus files are closed.
    pub fn set_open_files(&self, config: &StorageConfig) {
        self.open_files.set_limits(limits(config));
        self.close_excess();
    }

    /// Cancels long operations, because the bucket is being closed.
    pub fn stop(&self) {
        self.stopping.set();
        self.pauses.wake();
    }

    /// Returns `true` if the catalog of the files was damaged. It is then unknown whether files are missing.
    #[must_use]
    pub fn was_catalog_damaged(&self) -> bool {
        self.catalog.was_damaged()
    }

    /// Makes the commits recorded in the catalog durable. Called at the end of a process: without it, a power loss soon
    /// after may leave an older catalog, which lacks recent commits.
    ///
    /// # Errors
    /// Disk errors.
    pub fn sync_catalog(&self) -> Result<(), StorageError> {
        Ok(self.catalog.sync()?)
    }

    /// Returns the number of vBuckets of the bucket.
    #[must_use]
    pub fn vbuckets(&self) -> u16 {
        self.slots.len() as u16
    }

    /// Returns the directory of the files.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn slot(&self, vb: VbId) -> &FileSlot {
        &self.slots[usize::from(vb.get())]
    }

    /// Returns the size of the vBucket's file and of its valid contents, or `None` if it has none. Opens the file only
    /// if it was not opened before.
    ///
    /// # Errors
    /// Damage of the file, and disk errors.
    pub fn file_figures(&self, vb: VbId) -> Result<Option<FileFigures>, StorageError> {
        let counts = self.current_header(vb)?;
        Ok(counts.map(|(revision, header, file_bytes)| FileFigures {
            revision,
            file_bytes,
            data_bytes: header.used_bytes(),
            high_seqno: header.update_seqno(),
            purge_seqno: header.purge_seqno(),
            live: header.live_count(),
            deleted: header.deleted_count(),
        }))
    }

    /// Returns `true` if the vBucket's file has documents of dropped collections, which a compaction would remove. It
    /// is `false` until the file is written or loaded. The call waits for a writer of the file.
    #[must_use]
    pub fn has_dropped(&self, vb: VbId) -> bool {
        self.writer(vb).has_dropped()
    }

    /// Returns the number of bytes of each collection in the vBucket's file: stored values, keys and metadata. It is
    /// empty until the file is written or read, and while a thread writes to it.
    #[must_use]
    pub fn collection_bytes(&self, vb: VbId) -> BTreeMap<CollectionId, u64> {
        let guard = self.try_writer(vb);
        guard.map_or_else(BTreeMap::new, |guard| guard.collection_bytes())
    }

    /// Returns the counters since the files were opened, and the number of open files.
    #[must_use]
    pub fn stats(&self) -> StorageStats {
        let (kept_files, kept_bytes) = self.open_files.figures();
        StorageStats::new(&self.counters, &self.done, kept_files, kept_bytes)
    }
}

fn limits(config: &StorageConfig) -> OpenFileLimits {
    OpenFileLimits {
        keep: config.keep_files_open,
        files: config.max_open_files,
        bytes: config.open_files_bytes_max,
    }
}
