//! The buckets of the server: created, changed and dropped while it runs, and stored in the data directory.
//!
//! Layout: `buckets/NAME/bucket.json` has a bucket's settings, `manifest.json` its scopes and collections, and the
//! bucket's own files lie beside them. A directory with `bucket.json` is a bucket. A partly created or dropped bucket,
//! which a crash may leave, has a marker file, and is removed at start-up. A directory with neither is left alone: see
//! `registry/directories.rs`.
//!
//! Invariants:
//! * Reading ([`BucketRegistry::get`], [`BucketRegistry::list`]) never waits for a change.
//! * Changes happen one at a time, also of different buckets.
//! * A bucket leaves the cluster map before it leaves the registry, and the registry before its files are removed.

mod alone;
mod directories;
mod keys;
mod manifests;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use arc_swap::ArcSwap;
use kedge_bucket::{
    Bucket, BucketChange, BucketConfig, BucketError, BucketSetup, Completions, Ctx, ImportReport,
    RecoveryMode, ServingGate, Topology, finish_drop, import_files,
};
use kedge_cluster::{BucketEntry, ClusterError, ClusterView, ManifestError, ManifestKeeper, Ports};
use kedge_disk::{Disk, DiskError, read_file, replace_file};
use kedge_encryption::{KeyringError, MasterKeys};
use kedge_executor::{Executor, OwnerId};
use kedge_sync::{
    RankedMutex,
    ranks::{ManifestKeepers, RegistryChange},
};
use kedge_types::limits::{
    BUCKET_NAME_BYTES_MAX, BUCKETS_MAX, COMPACTION_RESERVE_BYTES, SHUTDOWN_APPLY_MS,
};
use kedge_types::{Clock, ManifestUid, Status};

use self::alone::StateFile;
use self::directories::Directory;
pub use self::directories::{Unserved, is_remainder};
use self::manifests::Keepers;
use crate::machine::files_for_buckets;
use crate::state_files::StateFileError;

/// The reason why a bucket could not be created, changed, dropped or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// A bucket with that name exists, or with one that differs only in case.
    #[error("bucket {0} already exists")]
    Exists(String),
    /// The bucket does not exist.
    #[error("there is no bucket {0}")]
    NotFound(String),
    /// The directory of that name is not served, and stays as it is.
    #[error("{} is not served: {}; {}", .0.path.display(), .0.why, .0.remedy)]
    Unserved(Unserved),
    /// The settings of the bucket in a directory are lost.
    #[error(
        "{} has no bucket.json, and no copy of one; put it back from a backup while the server is stopped",
        .0.display()
    )]
    NoSettings(PathBuf),
    /// The directory has another bucket than the cluster's of that name.
    #[error(
        "{} has another bucket than the cluster's bucket of this name; move it out of the data directory",
        .0.display()
    )]
    NotOfCluster(PathBuf),
    /// A file of the server's state is missing, or cannot be read.
    #[error(transparent)]
    State(#[from] StateFileError),
    /// The name is invalid for a bucket.
    #[error("a bucket name {0}")]
    BadName(&'static str),
    /// The server has the maximum number of buckets.
    #[error("the server has {BUCKETS_MAX} buckets, as many as it may have")]
    TooMany,
    /// Flushing the bucket is disabled.
    #[error("flush is not enabled for bucket {0}")]
    FlushDisabled(String),
    /// The flush failed.
    #[error("the bucket answers {}", .0.name())]
    Refused(Status),
    /// A setting is invalid; the text names it.
    #[error("{0}")]
    BadSetting(String),
    /// Its scopes and collections do not allow it.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The bucket's settings or its manifest cannot be read.
    #[error("{}: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The error in it.
        why: String,
    },
    /// The bucket is encrypted, or is to be, and there is no master key.
    #[error(
        "bucket {name} is {}, and the server has no master key: give it with encryption_master_key",
        if *is_encrypted { "encrypted" } else { "to be encrypted" }
    )]
    NoMasterKey {
        /// The bucket.
        name: String,
        /// True if it has a keyring already.
        is_encrypted: bool,
    },
    /// The data keys of a bucket cannot be read or changed.
    #[error("bucket {name}: {source}")]
    Keyring {
        /// The bucket.
        name: String,
        /// The reason.
        source: KeyringError,
    },
    /// The bucket cannot be opened or removed.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// A file cannot be read or written.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The cluster's state cannot be read or saved.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The system has no random bytes.
    #[error("the system has no random bytes")]
    Random,
}

impl RegistryError {
    /// Returns whether the disk was full. A retry may succeed when there is space.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        match self {
            Self::Disk(error)
            | Self::Bucket(BucketError::Disk(error))
            | Self::Keyring {
                source: KeyringError::Disk(error),
                ..
            } => error.is_no_space(),
            Self::Cluster(ClusterError::Save(error)) => {
                let error = error.downcast_ref::<DiskError>();
                error.is_some_and(DiskError::is_no_space)
            }
            _ => false,
        }
    }
}

/// The environment of the buckets.
#[derive(Clone)]
pub struct RegistrySetup {
    /// The file system.
    pub disk: Arc<dyn Disk>,
    /// The data directory; this process has its lock.
    pub data_dir: PathBuf,
    /// The master key of encryption at rest, if there is one.
    pub master_keys: Option<MasterKeys>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The executor of the buckets' background tasks.
    pub executor: Executor,
    /// The owner of tasks that belong to no bucket.
    pub owner: OwnerId,
    /// The receiver of completions of parked commands.
    pub completions: Arc<dyn Completions>,
    /// The time until which the node serves its active vBuckets.
    pub serving: Arc<ServingGate>,
    /// The number of front-end threads. [`Ctx::thread`] of other threads is this number.
    pub threads: u16,
    /// The handling of damage in a log.
    pub recovery: RecoveryMode,
    /// True on a node of a cluster, whose map determines the buckets.
    pub clustered: bool,
    /// Called if a bucket cannot go on safely; should end the process.
    pub on_fatal: Arc<dyn Fn(&str) + Send + Sync>,
}

/// The file in which a standalone node stores the cluster map.
pub const ALONE_FILE: &str = "cluster.json";
/// The settings in a bucket's directory.
const CONFIG_FILE: &str = "bucket.json";
/// The number of files that a bucket keeps open at least, however few the process may open.
const OPEN_FILES_MIN: u32 = 16;

type BucketsByName = BTreeMap<String, Arc<Bucket>>;

/// The buckets of the server.
pub struct BucketRegistry {
    setup: RegistrySetup,
    cluster: Arc<ClusterView>,
    buckets: ArcSwap<BucketsByName>,
    keepers: RankedMutex<ManifestKeepers, Keepers>,
    /// Grows whenever a bucket is added or removed.
    generation: AtomicU64,
    /// Locked during a change.
    change: RankedMutex<RegistryChange, ()>,
    /// The number of directories that were not served at the last check.
    unserved: AtomicUsize,
}

impl std::fmt::Debug for BucketRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<String> = self.buckets.load().keys().cloned().collect();
        f.debug_struct("BucketRegistry")
            .field("buckets", &names)
            .finish_non_exhaustive()
    }
}

impl BucketRegistry {
    /// Opens every bucket of the data directory; they load in the background. Creates the cluster map, in which this
    /// node listens on `ports`.
    ///
    /// # Errors
    /// `Damaged`, `Disk`, `Cluster`, `Bucket`.
    pub fn open(setup: RegistrySetup, ports: Ports) -> Result<Self, RegistryError> {
        let mut buckets = BucketsByName::new();
        let mut keepers = Keepers::new();
        let configs = read_configs(&setup)?;
        let count = configs.len();
        for config in configs {
            let keeper = manifests::read_manifest(&setup, &config.name)?;
            let bucket = open_bucket(&setup, config, &keeper, count)?;
            keepers.insert(bucket.name().to_owned(), keeper);
            buckets.insert(bucket.name().to_owned(), bucket);
        }
        let shown =
            |bucket: &Arc<Bucket>| entry(&bucket.config(), bucket.collections().manifest().uid);
        let entries: Vec<BucketEntry> = buckets.values().map(shown).collect();
        let cluster = if setup.clustered {
            ClusterView::following(ports)
        } else {
            open_cluster(&setup, ports, entries)?
        };
        let registry = Self {
            setup,
            cluster: Arc::new(cluster),
            buckets: ArcSwap::from_pointee(buckets),
            keepers: RankedMutex::new(keepers),
            generation: AtomicU64::new(1),
            change: RankedMutex::new(()),
            unserved: AtomicUsize::new(0),
        };
        registry.find_unserved()?;
        Ok(registry)
    }

    /// Returns the cluster map with the buckets of this node.
    #[must_use]
    pub fn cluster(&self) -> &Arc<ClusterView> {
        &self.cluster
    }

    /// Returns the bucket with that name. Never blocks.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<Bucket>> {
        self.buckets.load().get(name).cloned()
    }

    /// Returns all buckets, ordered by name. Never blocks.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<Bucket>> {
        self.buckets.load().values().cloned().collect()
    }

    /// Returns the gate of the node: the time until which it serves its active vBuckets.
    #[must_use]
    pub fn serving(&self) -> &Arc<ServingGate> {
        &self.setup.serving
    }

    /// Closes the gate of the node, and waits until no operation of a client on an active vBucket runs.
    pub fn stop_serving(&self) {
        self.setup.serving.close();
        // A bucket that is missing here was opened after the gate was closed.
        for bucket in self.list() {
            bucket.await_steps();
        }
    }

    /// Returns a number that grows whenever a bucket is added or removed.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Creates a bucket. Clients can select it when this returns.
    ///
    /// # Errors
    /// `BadName`, `BadSetting`, `Exists`, `TooMany`; `Disk`, `Bucket` or `Cluster` when it could not be created, and
    /// then it does not exist.
    pub fn create(&self, config: BucketConfig) -> Result<Arc<Bucket>, RegistryError> {
        let _one_at_a_time = self.change.lock();
        check_name(&config.name)?;
        config.check().map_err(RegistryError::BadSetting)?;
        let before = self.buckets.load();
        if before
            .keys()
            .any(|name| name.eq_ignore_ascii_case(&config.name))
        {
            return Err(RegistryError::Exists(config.name));
        }
        if before.len() >= BUCKETS_MAX {
            return Err(RegistryError::TooMany);
        }
        let (disk, data_dir) = (&*self.setup.disk, &self.setup.data_dir);
        let dir = bucket_dir(data_dir, &config.name);
        directories::begin_creation(disk, data_dir, &config.name, false)?;
        let manifest = ManifestKeeper::default();
        let made = save_config(&self.setup, &config)
            .and_then(|()| Ok(directories::end_creation(disk, &dir)?))
            .and_then(|()| open_bucket(&self.setup, config, &manifest, before.len() + 1));
        let bucket = match made {
            Ok(bucket) => bucket,
            Err(error) => {
                if let Err(why) = directories::undo_creation(disk, &dir) {
                    tracing::error!(dir = %dir.display(), error = %why, "the rest of a failed creation stays");
                }
                return Err(error);
            }
        };
        self.publish(|buckets| {
            buckets.insert(bucket.name().to_owned(), bucket.clone());
        });
        let shown = entry(&bucket.config(), manifest.uid());
        if let Err(error) = self.cluster.put_bucket(shown) {
            directories::begin_drop(disk, &dir)?;
            self.forget(&bucket)?;
            return Err(error.into());
        }
        Ok(bucket)
    }

    /// Serves a bucket directory that is not served, see [`BucketRegistry::unserved`], with its settings, or those of
    /// their copy. Clients can select it when this returns. In a cluster, `uuid` is that of the cluster's bucket of this
    /// name, and any other bucket is refused: the node would drop it.
    ///
    /// # Errors
    /// `BadName`, `Exists`, `TooMany`; `NotFound` without such a directory; `NoSettings`; `NotOfCluster`; `Damaged`,
    /// `State`, `Disk`, `Bucket`, `Cluster`.
    pub fn adopt(&self, name: &str, uuid: Option<&str>) -> Result<Arc<Bucket>, RegistryError> {
        let _one_at_a_time = self.change.lock();
        check_name(name)?;
        let before = self.buckets.load();
        if before.keys().any(|known| known.eq_ignore_ascii_case(name)) {
            return Err(RegistryError::Exists(name.to_owned()));
        }
        if before.len() >= BUCKETS_MAX {
            return Err(RegistryError::TooMany);
        }
        let (disk, dir) = (&*self.setup.disk, bucket_dir(&self.setup.data_dir, name));
        let is = directories::look(disk, &dir)?;
        let config = match is {
            Directory::Bucket => read_named(disk, &dir, name)?,
            Directory::Unknown => directories::copied_settings(disk, &dir, name)?,
            _ => return Err(RegistryError::NotFound(name.to_owned())),
        };
        if uuid.is_some_and(|uuid| uuid != config.uuid) {
            return Err(RegistryError::NotOfCluster(dir));
        }
        if is == Directory::Unknown {
            directories::restore_settings(disk, &dir)?;
        }
        let keeper = manifests::read_manifest(&self.setup, name)?;
        let bucket = open_bucket(&self.setup, config, &keeper, before.len() + 1)?;
        let shown = entry(&bucket.config(), keeper.uid());
        self.keepers.lock().insert(name.to_owned(), keeper);
        self.publish(|buckets| {
            buckets.insert(name.to_owned(), bucket.clone());
        });
        tracing::warn!(
            bucket = name,
            "the bucket is served again, as an operator wished"
        );
        // It is served, regardless of a disk error; the next check counts again.
        let _ = self.find_unserved();
        self.cluster.put_bucket(shown)?;
        Ok(bucket)
    }

    /// Returns the directories of buckets that are not served, and stay as they are.
    ///
    /// # Errors
    /// `Disk`.
    pub fn unserved(&self) -> Result<Vec<Unserved>, RegistryError> {
        let _one_at_a_time = self.change.lock();
        self.find_unserved()
    }

    /// Counts the directories of buckets that are not served again, for [`BucketRegistry::stats`]. The last count stays
    /// during a change, or after a disk error.
    pub fn count_unserved(&self) {
        if let Some(_one_at_a_time) = self.change.try_lock() {
            let _ = self.find_unserved();
        }
    }

    /// Returns the master keys of encryption at rest, if there are some.
    #[must_use]
    pub fn master_keys(&self) -> Option<&MasterKeys> {
        self.setup.master_keys.as_ref()
    }

    /// Returns the directory of the bucket with that name.
    #[must_use]
    pub fn dir_of(&self, name: &str) -> PathBuf {
        bucket_dir(&self.setup.data_dir, name)
    }

    /// Calls `each` with the name and value of each statistic. Never blocks.
    pub fn stats(&self, each: &mut dyn FnMut(&str, &str)) {
        let unserved = self.unserved.load(Ordering::Relaxed);
        each("unserved_directories", &unserved.to_string());
        let master_key = self.setup.master_keys.as_ref().map(MasterKeys::info);
        let master_key = master_key.unwrap_or_default();
        each("master_key_requests", &master_key.requests.to_string());
        each("master_key_failures", &master_key.failures.to_string());
    }

    /// Finds them for a caller that holds the lock of changes, as a bucket that is being created is not served yet.
    fn find_unserved(&self) -> Result<Vec<Unserved>, RegistryError> {
        let buckets = self.buckets.load();
        let is_served = |name: &str| buckets.contains_key(name);
        let (disk, data_dir) = (&*self.setup.disk, &self.setup.data_dir);
        let unserved = directories::unserved(disk, data_dir, is_served)?;
        self.unserved.store(unserved.len(), Ordering::Relaxed);
        Ok(unserved)
    }

    /// Changes settings of a bucket. Clients get a new revision of the map, so that they look again.
    ///
    /// # Errors
    /// `NotFound`, `BadSetting`; `Disk` or `Cluster` when the change holds now but may not hold after a restart.
    pub fn update(&self, name: &str, change: &BucketChange) -> Result<(), RegistryError> {
        let _one_at_a_time = self.change.lock();
        let bucket = self.existing(name)?;
        let config = bucket.update(change).map_err(RegistryError::BadSetting)?;
        save_config(&self.setup, &config)?;
        let uid = bucket.collections().manifest().uid;
        self.cluster.put_bucket(entry(&config, uid))?;
        Ok(())
    }

    /// Drops a bucket and all its documents. Connections that selected it get `NoBucket` from then on.
    ///
    /// # Errors
    /// `NotFound`; `Cluster` or `Disk` and nothing was dropped; `Bucket` and it is gone, but files may remain until the
    /// next start.
    pub fn drop_bucket(&self, name: &str) -> Result<(), RegistryError> {
        let _one_at_a_time = self.change.lock();
        let bucket = self.existing(name)?;
        let (disk, dir) = (&*self.setup.disk, bucket_dir(&self.setup.data_dir, name));
        // Before anything is removed: the next start completes a drop that a crash interrupts.
        directories::begin_drop(disk, &dir)?;
        if let Err(error) = self.cluster.remove_bucket(name) {
            directories::cancel_drop(disk, &dir)?;
            return Err(error.into());
        }
        self.forget(&bucket)
    }

    /// Empties a bucket, once it is loaded: a new one may not be.
    ///
    /// # Errors
    /// `NotFound`, `FlushDisabled`, `Refused`.
    pub fn flush(&self, name: &str) -> Result<(), RegistryError> {
        let bucket = self.existing(name)?;
        let (loading, is_over) = mpsc::channel::<()>();
        bucket.when_loaded(move || drop(loading));
        // The bucket knows whether it was loaded.
        let _ = is_over.recv();
        let (done, flushed) = mpsc::channel();
        let told = move |result| {
            // The receiver lives until it was called.
            let _ = done.send(result);
        };
        let begun = bucket.begin_flush_all(self.ctx(), told);
        begun.map_err(|_| RegistryError::FlushDisabled(name.to_owned()))?;
        let result = flushed.recv().unwrap_or(Err(Status::TemporaryFailure));
        result.map_err(RegistryError::Refused)
    }

    /// Returns the receiver of completions of parked commands.
    pub fn completions(&self) -> &Arc<dyn Completions> {
        &self.setup.completions
    }

    /// Returns the context of threads that are no front-end threads.
    #[must_use]
    pub fn ctx(&self) -> Ctx {
        Ctx {
            now: self.setup.clock.now(),
            thread: self.setup.threads,
        }
    }

    /// Syncs and closes every bucket.
    pub fn shutdown(&self) {
        let _one_at_a_time = self.change.lock();
        let buckets = self.buckets.load();
        let apply = Duration::from_millis(SHUTDOWN_APPLY_MS) / buckets.len().max(1) as u32;
        for bucket in buckets.values() {
            bucket.shutdown_within(apply);
        }
    }

    /// Returns the buckets that were not shut down cleanly, with the reasons.
    #[must_use]
    pub fn unclean(&self) -> Vec<String> {
        let buckets = self.list();
        let why = |bucket: &Arc<Bucket>| {
            let why = bucket.unclean()?;
            Some(format!("bucket {}: {why}", bucket.name()))
        };
        buckets.iter().filter_map(why).collect()
    }

    fn existing(&self, name: &str) -> Result<Arc<Bucket>, RegistryError> {
        self.get(name)
            .ok_or_else(|| RegistryError::NotFound(name.to_owned()))
    }

    fn publish(&self, change: impl FnOnce(&mut BucketsByName)) {
        let mut buckets = BucketsByName::clone(&self.buckets.load());
        change(&mut buckets);
        self.buckets.store(Arc::new(buckets));
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Removes a bucket whose drop has begun.
    fn forget(&self, bucket: &Bucket) -> Result<(), RegistryError> {
        let name = bucket.name();
        self.publish(|buckets| {
            buckets.remove(name);
        });
        self.keepers.lock().remove(name);
        bucket.destroy(self.setup.owner)?;
        Ok(())
    }
}

/// Checks the name of a bucket.
///
/// # Errors
/// `BadName`, which completes the sentence "a bucket name ...".
pub fn check_name(name: &str) -> Result<(), RegistryError> {
    let bad = |why| Err(RegistryError::BadName(why));
    if name.is_empty() {
        return bad("must not be empty");
    }
    if name.len() > BUCKET_NAME_BYTES_MAX {
        return bad("has at most 100 characters");
    }
    // It is the name of a directory too, so neither of the two dots, nor anything hidden.
    if name.starts_with('.') {
        return bad("does not begin with a full stop");
    }
    if !name
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"_-.%".contains(&b))
    {
        return bad("has only the characters A-Z, a-z, 0-9, _, -, . and %");
    }
    Ok(())
}

/// Returns the directory of all buckets in a data directory.
#[must_use]
pub fn buckets_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("buckets")
}

fn bucket_dir(data_dir: &Path, name: &str) -> PathBuf {
    buckets_dir(data_dir).join(name)
}

fn config_path(dir: &Path) -> PathBuf {
    dir.join(CONFIG_FILE)
}

/// Returns the stored settings of a bucket; `None` if there is no such bucket.
///
/// # Errors
/// `Disk`, `Damaged`.
pub fn stored_config(
    disk: &dyn Disk,
    data_dir: &Path,
    name: &str,
) -> Result<Option<BucketConfig>, RegistryError> {
    let path = config_path(&bucket_dir(data_dir, name));
    if name.is_empty() || !disk.exists(&path)? {
        return Ok(None);
    }
    read_config(disk, &path).map(Some)
}

/// Derives the number of vBuckets of the bucket of the files `N.couch.R` in `source` from their keys.
///
/// # Errors
/// `Bucket` if the keys fit no number, or too many, or a file cannot be read.
pub fn vbuckets_of_files(disk: &dyn Disk, source: &Path) -> Result<u16, RegistryError> {
    Ok(kedge_bucket::vbuckets_of_files(disk, source)?)
}

/// Creates a bucket from the vBucket files of another server, the files `N.couch.R` of `source`. No server may use the
/// data directory. The bucket exists when it is complete; an interrupted import can be repeated.
///
/// # Errors
/// `BadName`, `BadSetting`, `Exists`; `Bucket` with the file that cannot be taken over; `Cluster` when the scopes and
/// collections of the files contradict themselves; `Disk`.
pub fn import(
    disk: &Arc<dyn Disk>,
    data_dir: &Path,
    config: &BucketConfig,
    source: &Path,
) -> Result<ImportReport, RegistryError> {
    check_name(&config.name)?;
    config.check().map_err(RegistryError::BadSetting)?;
    let buckets = buckets_dir(data_dir);
    disk.create_dir_all(&buckets)?;
    for name in disk.list(&buckets)? {
        let is = directories::look(&**disk, &bucket_dir(data_dir, &name))?;
        if is == Directory::Bucket && name.eq_ignore_ascii_case(&config.name) {
            return Err(RegistryError::Exists(name));
        }
    }
    let dir = bucket_dir(data_dir, &config.name);
    directories::begin_creation(&**disk, data_dir, &config.name, true)?;
    let import = import_files(disk, &dir, config.vbuckets, source)?;
    let keeper = ManifestKeeper::going_on(import.manifest.clone())?;
    manifests::write_manifest(&**disk, &dir, &keeper)?;
    write_config(&**disk, data_dir, config)?;
    directories::end_creation(&**disk, &dir)?;
    Ok(import)
}

/// Changes the settings of a bucket that is not open: some can only be changed then.
///
/// # Errors
/// `BadSetting`, `Disk`.
pub fn change_stored(
    disk: &dyn Disk,
    data_dir: &Path,
    is: &BucketConfig,
    change: &BucketChange,
) -> Result<(), RegistryError> {
    let config = change.apply(is);
    config.check().map_err(RegistryError::BadSetting)?;
    write_config(disk, data_dir, &config)
}

fn save_config(setup: &RegistrySetup, config: &BucketConfig) -> Result<(), RegistryError> {
    write_config(&*setup.disk, &setup.data_dir, config)
}

fn write_config(
    disk: &dyn Disk,
    data_dir: &Path,
    config: &BucketConfig,
) -> Result<(), RegistryError> {
    let dir = bucket_dir(data_dir, &config.name);
    let path = config_path(&dir);
    let json = serde_json::to_vec_pretty(config).map_err(|error| RegistryError::Damaged {
        path: path.clone(),
        why: error.to_string(),
    })?;
    replace_file(disk, &path, &json)?;
    Ok(directories::keep_copy(disk, &dir, &json)?)
}

fn read_config(disk: &dyn Disk, path: &Path) -> Result<BucketConfig, RegistryError> {
    let damaged = |why: String| RegistryError::Damaged {
        path: path.to_owned(),
        why,
    };
    let bytes = read_file(disk, path)?;
    let config: BucketConfig =
        serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    config.check().map_err(damaged)?;
    Ok(config)
}

/// Reads the settings in the directory of a bucket, which must be those of the bucket of that name.
fn read_named(disk: &dyn Disk, dir: &Path, name: &str) -> Result<BucketConfig, RegistryError> {
    read_config_of(disk, &config_path(dir), name)
}

fn read_config_of(disk: &dyn Disk, path: &Path, name: &str) -> Result<BucketConfig, RegistryError> {
    let config = read_config(disk, path)?;
    if config.name != name {
        return Err(RegistryError::Damaged {
            path: path.to_owned(),
            why: format!("it names bucket {}, not {name}", config.name),
        });
    }
    Ok(config)
}

/// Reads the settings of every bucket, after removing the remainders of interrupted creations and drops. Anything else
/// is left alone.
fn read_configs(setup: &RegistrySetup) -> Result<Vec<BucketConfig>, RegistryError> {
    let dir = buckets_dir(&setup.data_dir);
    setup.disk.create_dir_all(&dir)?;
    let disk = &*setup.disk;
    let mut configs = Vec::new();
    for name in disk.list(&dir)? {
        let dir = bucket_dir(&setup.data_dir, &name);
        match directories::look(disk, &dir)? {
            Directory::Nothing => {}
            Directory::Bucket => {
                directories::end_creation(disk, &dir)?;
                configs.push(read_named(disk, &dir, &name)?);
                directories::keep_copy(disk, &dir, &read_file(disk, &config_path(&dir))?)?;
            }
            Directory::Dropping => {
                tracing::warn!(
                    bucket = name,
                    "removing the rest of a bucket that was dropped"
                );
                finish_drop(disk, &dir)?;
            }
            Directory::Creating => {
                tracing::warn!(
                    bucket = name,
                    "removing a bucket whose creation was not completed"
                );
                directories::remove_unmade(disk, &dir)?;
            }
            is @ Directory::Unknown => {
                let Unserved {
                    path, why, remedy, ..
                } = Unserved::new(disk, &setup.data_dir, &name, is)?;
                let path = path.display();
                tracing::error!(bucket = name, %path, why, remedy, "a directory is not served and stays as it is");
            }
        }
    }
    Ok(configs)
}

/// Opens one of so many buckets, with its manifest.
fn open_bucket(
    setup: &RegistrySetup,
    config: BucketConfig,
    manifest: &ManifestKeeper,
    buckets: usize,
) -> Result<Arc<Bucket>, RegistryError> {
    let keyring = keys::open_keyring(setup, &config)?;
    let bucket = Bucket::open(BucketSetup {
        disk: setup.disk.clone(),
        dir: bucket_dir(&setup.data_dir, &config.name),
        config,
        keyring,
        clock: setup.clock.clone(),
        executor: setup.executor.clone(),
        completions: setup.completions.clone(),
        threads: setup.threads,
        recovery: setup.recovery,
        topology: (!setup.clustered).then(Topology::alone),
        serving: setup.serving.clone(),
        open_files_max: files_per_bucket(buckets),
        compaction_reserve_bytes: COMPACTION_RESERVE_BYTES,
        on_fatal: setup.on_fatal.clone(),
    })?;
    bucket
        .collections()
        .set_manifest(manifest.manifest().clone());
    Ok(bucket)
}

/// Returns the number of files that each of so many buckets may keep open: together at most their part of the limit.
fn files_per_bucket(buckets: usize) -> u32 {
    let each = files_for_buckets() / buckets.max(1) as u64;
    u32::try_from(each).unwrap_or(u32::MAX).max(OPEN_FILES_MIN)
}

fn entry(config: &BucketConfig, manifest: ManifestUid) -> BucketEntry {
    BucketEntry {
        name: config.name.clone(),
        // `BucketConfig::check` was called before any bucket opens.
        uuid: config.uuid_bytes().unwrap_or_default(),
        vbuckets: config.vbuckets,
        manifest_uid: manifest.0,
    }
}

fn open_cluster(
    setup: &RegistrySetup,
    ports: Ports,
    entries: Vec<BucketEntry>,
) -> Result<ClusterView, RegistryError> {
    let file = StateFile::new(setup.disk.clone(), setup.data_dir.clone());
    let state = file.load()?;
    Ok(ClusterView::new(state, ports, entries, file.into_save())?)
}
