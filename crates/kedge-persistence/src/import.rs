//! Import of a bucket from the vBucket files of another server.

use crate::shutdown_marker::ShutdownMarker;
use kedge_bucket_core::{BucketError, new_uuid};
use kedge_disk::Disk;
use kedge_storage::{ImportReport, Storage, StorageConfig, vbuckets_of};
use kedge_types::VbId;
use std::path::Path;
use std::sync::Arc;

/// Returns the number of vBuckets of the bucket that the files `N.couch.R` in the directory `source` belong to.
///
/// # Errors
/// A storage error if the keys of the files fit no number of vBuckets, or more than one; if a file is damaged; or if
/// the disk fails.
pub fn vbuckets_of_files(disk: &dyn Disk, source: &Path) -> Result<u16, BucketError> {
    // With as many vBuckets as hash values, the number of the vBucket is the hash.
    let hash = |key: &[u8]| VbId::of_key(key, 1 << 15).get();
    Ok(vbuckets_of(disk, source, &hash)?)
}

/// Fills the directory `dir` of a bucket of `vbuckets` vBuckets, which has never been open, with the files `N.couch.R`
/// of the directory `source`. An interrupted import is completed by repeating it.
///
/// # Errors
/// A storage error if a file cannot be imported, for example because its keys belong to other vBuckets, or if the disk
/// fails. Files that were imported before the error remain.
pub fn import_files(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    vbuckets: u16,
    source: &Path,
) -> Result<ImportReport, BucketError> {
    let storage = Storage::open(Arc::clone(disk), dir, &StorageConfig::new(vbuckets))?;
    let place_of = |key: &[u8]| Some(VbId::of_key(key, vbuckets));
    let import = storage.import(&**disk, source, &place_of, &mut |_| new_uuid())?;
    // The imported files contain all changes of the bucket.
    ShutdownMarker::Clean.write(&**disk, dir)?;
    Ok(import)
}
