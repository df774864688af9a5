//! A bucket from the vBucket files of another server.

use crate::bucket::new_uuid;
use crate::error::BucketError;
use crate::mark::Mark;
use kedge_disk::Disk;
use kedge_storage::{Import, Storage, StorageConfig};
use std::path::Path;
use std::sync::Arc;

/// Fills the directory `dir` of a bucket of so many vBuckets, which has never been open, with the files `N.couch.R` of
/// the directory `source`. An import that was cut short is ended by doing it again.
///
/// # Errors
/// What storage says of a file; those of the disk. Files that were taken over before stay.
pub fn import_files(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    vbuckets: u16,
    source: &Path,
) -> Result<Import, BucketError> {
    let storage = Storage::open(Arc::clone(disk), dir, &StorageConfig::new(vbuckets))?;
    let import = storage.import(&**disk, source, &mut |_| new_uuid())?;
    // The files are all there is, and nothing was given out that they do not have.
    Mark::Clean.write(&**disk, dir)?;
    Ok(import)
}
