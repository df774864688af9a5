//! The operations on buckets that management needs.

use kedge_bucket::{
    BucketChange, BucketConfig, CollectionFigures, CompactionProgress, CompactionRequest,
    CompactionTicket, EncryptionStatus, TimingSnapshot, VbReset,
};
use kedge_cluster::{ManifestEdit, ManifestError};
use kedge_encryption::MasterKeyInfo;
use kedge_node::registry::Unserved;
use kedge_types::{Manifest, ManifestUid, VbId};
use std::sync::Arc;

/// One bucket as management shows it.
#[derive(Clone, Debug)]
pub struct BucketFacts {
    /// The settings.
    pub config: BucketConfig,
    /// True while the bucket reads its log; commands get a temporary failure until then.
    pub loading: bool,
    /// The number of documents.
    pub items: u64,
    /// Memory that counts against the quota, in bytes.
    pub mem_used_bytes: u64,
    /// The size of its files, in bytes.
    pub disk_bytes: u64,
    /// Its encryption at rest, if the server has a master key.
    pub encryption: Option<EncryptionStatus>,
}

/// The numbers of buckets that are still starting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartingBuckets {
    /// Buckets that read their logs.
    pub loading: usize,
    /// Buckets that read documents into memory.
    pub warming: usize,
}

/// The reason why an operation on a bucket failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BucketsError {
    /// The bucket does not exist.
    #[error("there is no bucket of that name")]
    NotFound,
    /// The bucket already exists.
    #[error("there is a bucket of that name")]
    Exists,
    /// The server has the maximum number of buckets.
    #[error("the server has {0} buckets, as many as it may have")]
    TooMany(usize),
    /// The bucket may not be flushed.
    #[error("flush is not enabled for the bucket")]
    FlushDisabled,
    /// A setting is invalid.
    #[error("{0}")]
    Refused(String),
    /// The scopes and collections do not allow it.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A temporary failure; a retry may succeed.
    #[error("the bucket cannot do that now: {0}")]
    Temporary(String),
    /// Any other error.
    #[error("{0}")]
    Failed(String),
}

/// The buckets of the server. Calls may block on the disk.
pub trait Buckets: Send + Sync + 'static {
    /// Returns the bucket with that name.
    fn get(&self, name: &str) -> Option<BucketFacts>;
    /// Returns all buckets, ordered by name.
    fn list(&self) -> Vec<BucketFacts>;
    /// Returns the numbers of buckets that are still starting. Never waits.
    fn starting(&self) -> StartingBuckets;
    /// Creates a bucket; clients can select it when this returns.
    ///
    /// # Errors
    /// `Exists`, `TooMany`, `Refused`, `Failed`.
    fn create(&self, config: BucketConfig) -> Result<(), BucketsError>;
    /// Returns the directories of buckets that are not served, and stay as they are.
    ///
    /// # Errors
    /// `Failed`.
    fn unserved(&self) -> Result<Vec<Unserved>, BucketsError>;
    /// Counts these directories again for the statistics.
    fn count_unserved(&self);
    /// Serves an existing bucket directory that is not served. In a cluster, `uuid` is that of the cluster's bucket.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `TooMany`, `Refused`, `Failed`.
    fn adopt(&self, name: &str, uuid: Option<&str>) -> Result<(), BucketsError>;
    /// Changes settings.
    ///
    /// # Errors
    /// `NotFound`, `Refused`, `Failed`.
    fn update(&self, name: &str, change: &BucketChange) -> Result<(), BucketsError>;
    /// Drops a bucket and all its documents.
    ///
    /// # Errors
    /// `NotFound`, `Failed`.
    fn remove(&self, name: &str) -> Result<(), BucketsError>;
    /// Empties a bucket.
    ///
    /// # Errors
    /// `NotFound`, `FlushDisabled`, `Temporary`.
    fn flush(&self, name: &str) -> Result<(), BucketsError>;
    /// Returns the scopes and collections; `None` if there is no such bucket.
    fn manifest(&self, name: &str) -> Option<Arc<Manifest>>;
    /// Returns the figures of the collections; `None` if there is no such bucket.
    fn collection_figures(&self, name: &str) -> Option<Vec<CollectionFigures>>;
    /// Changes scopes and collections; clients can use new ones when this returns. Returns the uid of the manifest
    /// after the change.
    ///
    /// # Errors
    /// `NotFound`, `Manifest`, `Failed`.
    fn edit_manifest(&self, name: &str, edit: &ManifestEdit) -> Result<ManifestUid, BucketsError>;
    /// Requests a compaction.
    ///
    /// # Errors
    /// `NotFound`, `Refused` for a vBucket that does not exist, `Temporary`.
    fn compact(
        &self,
        name: &str,
        request: &CompactionRequest,
    ) -> Result<CompactionTicket, BucketsError>;
    /// Gives up the file of a quarantined vBucket, see [`kedge_bucket::Bucket::reset_vbucket`].
    ///
    /// # Errors
    /// `NotFound`, `Refused` for a vBucket that does not exist or is not quarantined, `Temporary`.
    fn reset_vbucket(&self, name: &str, vb: VbId) -> Result<VbReset, BucketsError>;
    /// Cancels all compactions of a bucket, and returns their number.
    ///
    /// # Errors
    /// `NotFound`.
    fn cancel_compaction(&self, name: &str) -> Result<usize, BucketsError>;
    /// Returns the running and waiting compactions; none if there is no such bucket.
    fn compactions(&self, name: &str) -> Vec<CompactionProgress>;
    /// Returns the state of the bucket's encryption; `None` if there is no such bucket.
    fn encryption(&self, name: &str) -> Option<EncryptionStatus>;
    /// Gives an encrypted bucket a new data key, and has all its data written again with it.
    ///
    /// # Errors
    /// `NotFound`, `Refused` if it is not encrypted, `Failed`.
    fn rotate_keys(&self, name: &str) -> Result<(), BucketsError>;
    /// Returns the name of the master key and its description, if there is one.
    fn master_key(&self) -> Option<(String, MasterKeyInfo)>;
    /// Encrypts and decrypts something with the master key.
    ///
    /// # Errors
    /// `NotFound` if there is none, `Temporary` if it does not work.
    fn test_master_key(&self) -> Result<(), BucketsError>;
    /// Has the master key wrap the data keys of all buckets again. The buckets that could not do it try again later.
    ///
    /// # Errors
    /// `NotFound` if there is no master key, `Temporary` with the bucket.
    fn rewrap_keys(&self) -> Result<(), BucketsError>;
    /// Returns statistics of a bucket by name; `None` if there is no such bucket.
    fn stats(&self, name: &str) -> Option<Vec<(String, String)>>;
    /// Returns histograms of a bucket by name; `None` if there is no such bucket.
    fn timings(&self, name: &str) -> Option<Vec<(&'static str, TimingSnapshot)>>;
}
