//! Compaction of a whole file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kedge_bench_common::measure::{WorkCost, measure};
use kedge_bench_common::site::Site;
use kedge_couchstore::compact::{Compaction, CompactionSettings, KeepAll, target_path};
use kedge_couchstore::{Error, Options, Snapshot};
use kedge_disk::Disk;

/// Copies all documents of a file to another. Returns the path of that, the number of documents, and the cost.
///
/// # Errors
/// The errors of the library.
pub fn compact(site: &Site, source: &Path) -> Result<(PathBuf, u64, WorkCost), Error> {
    let target = target_path(source);
    let disk: Arc<dyn Disk> = Arc::clone(&site.disk) as _;
    let (progress, taken) = measure(&site.disk, || {
        let source = Snapshot::open(&*disk, source, &Options::default())?;
        let settings = CompactionSettings::default();
        Compaction::run(&disk, &source, &target, &settings, &mut KeepAll)?.finish()
    });
    Ok((target, progress?.kept, taken))
}
