//! What management asks of the buckets.

use kedge_bucket::{
    BucketChange, BucketConfig, CollectionFigures, CompactionProgress, CompactionRequest,
    CompactionTicket, TimingSnapshot, VbReset,
};
use kedge_cluster::{ManifestEdit, ManifestError};
use kedge_node::registry::Unserved;
use kedge_types::{Manifest, ManifestUid, VbId};
use std::sync::Arc;

/// One bucket as management shows it.
#[derive(Clone, Debug)]
pub struct BucketFacts {
    /// Its settings.
    pub config: BucketConfig,
    /// Whether it is still reading its log; commands get a temporary failure until then.
    pub loading: bool,
    /// Documents.
    pub items: u64,
    /// Memory that counts against the quota, in bytes.
    pub mem_used_bytes: u64,
    /// Size of its files, in bytes.
    pub disk_bytes: u64,
}

/// Why something could not be done to a bucket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BucketsError {
    /// There is no such bucket.
    #[error("there is no bucket of that name")]
    NotFound,
    /// There is one already.
    #[error("there is a bucket of that name")]
    Exists,
    /// The server has as many as it may.
    #[error("the server has {0} buckets, as many as it may have")]
    TooMany(usize),
    /// The bucket may not be flushed.
    #[error("flush is not enabled for the bucket")]
    FlushDisabled,
    /// A setting makes no sense.
    #[error("{0}")]
    Refused(String),
    /// Its scopes and collections do not allow it.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Not now; the same may work later.
    #[error("the bucket cannot do that now: {0}")]
    Temporary(String),
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

/// The buckets of the server. Calls may block on the disk.
pub trait Buckets: Send + Sync + 'static {
    /// The bucket of that name.
    fn get(&self, name: &str) -> Option<BucketFacts>;
    /// All of them, ordered by name.
    fn list(&self) -> Vec<BucketFacts>;
    /// Creates a bucket; when it returns, clients can select it.
    ///
    /// # Errors
    /// `Exists`, `TooMany`, `Refused`, `Failed`.
    fn create(&self, config: BucketConfig) -> Result<(), BucketsError>;
    /// Directories of buckets that are not served, and stay as they are.
    ///
    /// # Errors
    /// `Failed`.
    fn unserved(&self) -> Result<Vec<Unserved>, BucketsError>;
    /// Counts them anew for the statistics.
    fn count_unserved(&self);
    /// Serves a bucket whose directory is there and is not served.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `TooMany`, `Refused`, `Failed`.
    fn adopt(&self, name: &str) -> Result<(), BucketsError>;
    /// Changes settings.
    ///
    /// # Errors
    /// `NotFound`, `Refused`, `Failed`.
    fn update(&self, name: &str, change: &BucketChange) -> Result<(), BucketsError>;
    /// Drops a bucket and all that is in it.
    ///
    /// # Errors
    /// `NotFound`, `Failed`.
    fn remove(&self, name: &str) -> Result<(), BucketsError>;
    /// Empties a bucket.
    ///
    /// # Errors
    /// `NotFound`, `FlushDisabled`, `Temporary`.
    fn flush(&self, name: &str) -> Result<(), BucketsError>;
    /// Its scopes and collections; `None` without such a bucket.
    fn manifest(&self, name: &str) -> Option<Arc<Manifest>>;
    /// Figures of its collections; `None` without such a bucket.
    fn collection_figures(&self, name: &str) -> Option<Vec<CollectionFigures>>;
    /// Changes scopes and collections; when it returns, clients can use what was made. The uid is that of the manifest then.
    ///
    /// # Errors
    /// `NotFound`, `Manifest`, `Failed`.
    fn edit_manifest(&self, name: &str, edit: &ManifestEdit) -> Result<ManifestUid, BucketsError>;
    /// Asks for a compaction.
    ///
    /// # Errors
    /// `NotFound`, `Refused` for a vBucket that there is not, `Temporary`.
    fn compact(
        &self,
        name: &str,
        request: &CompactionRequest,
    ) -> Result<CompactionTicket, BucketsError>;
    /// Gives up the file of a vBucket that was quarantined, see [`kedge_bucket::Bucket::reset_vbucket`].
    ///
    /// # Errors
    /// `NotFound`, `Refused` for a vBucket that there is not or that is not quarantined, `Temporary`.
    fn reset_vbucket(&self, name: &str, vb: VbId) -> Result<VbReset, BucketsError>;
    /// Ends all compactions of a bucket, and says how many there were.
    ///
    /// # Errors
    /// `NotFound`.
    fn cancel_compaction(&self, name: &str) -> Result<usize, BucketsError>;
    /// The compactions that run or wait; nothing without such a bucket.
    fn compactions(&self, name: &str) -> Vec<CompactionProgress>;
    /// Statistics of a bucket by name; `None` without such a bucket.
    fn stats(&self, name: &str) -> Option<Vec<(String, String)>>;
    /// Histograms of a bucket by name; `None` without such a bucket.
    fn timings(&self, name: &str) -> Option<Vec<(&'static str, TimingSnapshot)>>;
}
