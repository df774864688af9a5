//! A bucket from the vBucket files of another server.

use crate::shutdown_marker::ShutdownMarker;
use kedge_bucket_core::BucketError;
use kedge_bucket_core::new_uuid;
use kedge_disk::Disk;
use kedge_storage::{Import, Storage, StorageConfig, vbuckets_of};
use kedge_types::VbId;
use std::path::Path;
use std::sync::Arc;

/// How many vBuckets the bucket had that the files `N.couch.R` of the directory `source` are from.
///
/// # Errors
/// What storage says if its keys fit no number, or too many; damage; those of the disk.
pub fn vbuckets_of_files(disk: &dyn Disk, source: &Path) -> Result<u16, BucketError> {
    // Of as many vBuckets as there are hashes, the hash is the number.
    let hash = |key: &[u8]| VbId::of_key(key, 1 << 15).get();
    Ok(vbuckets_of(disk, source, &hash)?)
}

/// Fills the directory `dir` of a bucket of so many vBuckets, which has never been open, with the files `N.couch.R` of
/// the directory `source`. An import that was cut short is ended by doing it again.
///
/// # Errors
/// What storage says of a file, one whose keys belong to other vBuckets among them; those of the disk. Files that were taken over before stay.
pub fn import_files(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    vbuckets: u16,
    source: &Path,
) -> Result<Import, BucketError> {
    let storage = Storage::open(Arc::clone(disk), dir, &StorageConfig::new(vbuckets))?;
    let place_of = |key: &[u8]| Some(VbId::of_key(key, vbuckets));
    let import = storage.import(&**disk, source, &place_of, &mut |_| new_uuid())?;
    // The files are all there is, and nothing was given out that they do not have.
    ShutdownMarker::Clean.write(&**disk, dir)?;
    Ok(import)
}
