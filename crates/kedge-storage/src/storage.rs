//! All files of a bucket.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kedge_couchstore::{OnDamage, Options};
use kedge_disk::{Disk, ObservedDisk};
use kedge_types::{CollectionId, VbId};

use crate::catalog::Catalog;
use crate::maintenance::Stopping;
use crate::metered;
use crate::names::take_stock;
use crate::open_files::{Limits, OpenFiles};
use crate::slot::Slot;
use crate::stats::{Counters, FileFigures, StorageStats};
use crate::throttle_pause::ThrottlePause;
use crate::{StorageConfig, StorageError};

/// The couchstore files of a bucket, one for each vBucket that ever had something written.
///
/// All methods may be called from any thread. Those that write to a vBucket's file wait for each other, those that read
/// wait for nobody. All panic when they are asked of a vBucket that the bucket does not have.
#[derive(Debug)]
pub struct Storage {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) open_files: OpenFiles,
    pub(crate) counters: Arc<Counters>,
    pub(crate) stopping: Stopping,
    pub(crate) pauses: ThrottlePause,
    pub(crate) catalog: Catalog,
    done: Arc<metered::Counters>,
    slots: Box<[Slot]>,
}

impl Storage {
    /// Finds the files in a directory, which is created if there is none. Of several revisions of a vBucket's file the
    /// highest counts; lower ones, those of deleted vBuckets, and what a crash left of files that were being made, are
    /// removed. The directory is synced, no file of a vBucket is opened.
    ///
    /// A file that the directory's catalog has and that is not there is an error for whoever asks for its vBucket, until
    /// [`Storage::put_away`] gives it up; so is one whose newest commit is older than the one that the catalog has.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        config: &StorageConfig,
    ) -> Result<Self, StorageError> {
        let catalog_disk = Arc::clone(&disk);
        Self::open_with_catalog_on(&*catalog_disk, disk, dir, config)
    }

    /// As [`Storage::open`], with the same disk in another form for the catalog, whose small writes count as none of the
    /// files' then.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn open_with_catalog_on(
        catalog_disk: &dyn Disk,
        disk: Arc<dyn Disk>,
        dir: &Path,
        config: &StorageConfig,
    ) -> Result<Self, StorageError> {
        let done = Arc::new(metered::Counters::default());
        let disk: Arc<dyn Disk> = Arc::new(ObservedDisk::new(disk, Arc::clone(&done)));
        disk.create_dir_all(dir)?;
        let stock = take_stock(&*disk, dir, config.vbuckets)?;
        let (catalog, judged) = Catalog::open(catalog_disk, dir, &stock)?;
        let slots = stock.into_iter().zip(judged).zip(0..);
        Ok(Storage {
            disk,
            dir: dir.to_owned(),
            options: Options {
                on_damage: OnDamage::Refuse,
                keys: Vec::new(),
                cache_bytes_max: config.file_cache_bytes_max,
                cache_leaves: true,
            },
            open_files: OpenFiles::new(config.vbuckets, limits(config)),
            counters: Arc::default(),
            stopping: Stopping::default(),
            pauses: ThrottlePause::default(),
            catalog,
            done,
            slots: slots
                .map(|((found, judged), vb)| Slot::new(VbId(vb), found, judged))
                .collect(),
        })
    }

    /// Takes over what `config` says of open files. Files that may not stay open are closed.
    pub fn set_open_files(&self, config: &StorageConfig) {
        self.open_files.set_limits(limits(config));
        self.close_excess();
    }

    /// Asks what takes long to end, as the bucket is closed.
    pub fn stop(&self) {
        self.stopping.set();
        self.pauses.wake();
    }

    /// Returns whether a catalog of the files was found that could not be understood: what is missing is not known then.
    #[must_use]
    pub fn was_catalog_damaged(&self) -> bool {
        self.catalog.was_damaged()
    }

    /// Makes durable what the catalog has of commits. For the end of a process: without it a loss of power soon after may
    /// leave an older catalog, which knows of fewer commits.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn sync_catalog(&self) -> Result<(), StorageError> {
        Ok(self.catalog.sync()?)
    }

    /// vBuckets of the bucket.
    #[must_use]
    pub fn vbuckets(&self) -> u16 {
        self.slots.len() as u16
    }

    /// The directory of the files.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn slot(&self, vb: VbId) -> &Slot {
        &self.slots[usize::from(vb.get())]
    }

    /// How large the vBucket's file is, and how much of it counts; `None` if it has none. Opens it only if nobody did
    /// so before.
    ///
    /// # Errors
    /// Damage, or those of the disk.
    pub fn file_figures(&self, vb: VbId) -> Result<Option<FileFigures>, StorageError> {
        let counts = self.what_counts(vb)?;
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

    /// Whether the vBucket's file has documents of collections that were dropped, which a compaction would leave out. No while
    /// nothing was written or loaded since the start. Waits for who writes.
    #[must_use]
    pub fn has_dropped(&self, vb: VbId) -> bool {
        self.writer(vb).has_dropped()
    }

    /// Bytes of each collection in the vBucket's file: values as stored, keys and metadata. Empty while nothing was written
    /// or looked at since the start, or while somebody writes.
    #[must_use]
    pub fn collection_bytes(&self, vb: VbId) -> BTreeMap<CollectionId, u64> {
        let guard = self.try_writer(vb);
        guard.map_or_else(BTreeMap::new, |guard| guard.collection_bytes())
    }

    /// What was done since the files were opened, and what is open.
    #[must_use]
    pub fn stats(&self) -> StorageStats {
        let (kept_files, kept_bytes) = self.open_files.figures();
        StorageStats::new(&self.counters, &self.done, kept_files, kept_bytes)
    }
}

fn limits(config: &StorageConfig) -> Limits {
    Limits {
        keep: config.keep_files_open,
        files: config.max_open_files,
        bytes: config.open_files_bytes_max,
    }
}
