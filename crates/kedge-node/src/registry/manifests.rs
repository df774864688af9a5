//! The collection manifests of the buckets, stored beside their settings in `manifest.json`.
//!
//! Invariants:
//! * A manifest is on disk before its bucket has it, and in the bucket before clients see it: an id that anybody has
//!   seen is never assigned to another collection, also after a crash.
//! * A bucket has its manifest before it can be selected.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use kedge_bucket::Bucket;
use kedge_cluster::{ManifestEdit, ManifestKeeper};
use kedge_disk::{Disk, read_file, replace_file};
use kedge_types::{Manifest, ManifestUid};

use super::{BucketRegistry, RegistryError, RegistrySetup, bucket_dir, entry};
use crate::state_files;

/// The file in a bucket's directory. A bucket whose manifest was never changed need not have it.
pub(crate) const MANIFEST_FILE: &str = "manifest.json";

/// The manifests by bucket.
pub(super) type Keepers = BTreeMap<String, ManifestKeeper>;

/// Reads the stored manifest of a bucket.
///
/// # Errors
/// `Disk`, `Damaged`; `State` if it is missing.
pub(super) fn read_manifest(
    setup: &RegistrySetup,
    bucket: &str,
) -> Result<ManifestKeeper, RegistryError> {
    let path = bucket_dir(&setup.data_dir, bucket).join(MANIFEST_FILE);
    if !state_files::is_there(&*setup.disk, &path)? {
        return Ok(ManifestKeeper::default());
    }
    let json = read_file(&*setup.disk, &path)?;
    ManifestKeeper::from_json(&json).map_err(|error| RegistryError::Damaged {
        path,
        why: error.to_string(),
    })
}

pub(super) fn write_manifest(
    disk: &dyn Disk,
    dir: &Path,
    keeper: &ManifestKeeper,
) -> Result<(), RegistryError> {
    let path = dir.join(MANIFEST_FILE);
    replace_file(disk, &path, &keeper.to_json())?;
    Ok(state_files::saved(disk, &path)?)
}

impl BucketRegistry {
    /// Returns the scopes and collections of a bucket. Never waits for a disk.
    #[must_use]
    pub fn manifest(&self, name: &str) -> Option<Arc<Manifest>> {
        Some(self.get(name)?.collections().manifest())
    }

    /// Changes scopes and collections of a bucket on a standalone server. When this returns, clients can use new ones
    /// and get a new revision of the map. A change without effect returns the current uid.
    ///
    /// # Errors
    /// `NotFound`, `Manifest`; `Disk` and nothing is changed; `Cluster` when the change holds, but clients may not see
    /// it.
    pub fn edit_manifest(
        &self,
        name: &str,
        edit: &ManifestEdit,
    ) -> Result<ManifestUid, RegistryError> {
        let _one_at_a_time = self.change.lock();
        let bucket = self.existing(name)?;
        let is = self.keeper(name);
        let next = is.edit(edit)?;
        let uid = next.uid();
        if uid > is.uid() {
            self.keep_manifest(&bucket, next)?;
            self.cluster.put_bucket(entry(&bucket.config(), uid))?;
        }
        Ok(uid)
    }

    /// Gives a bucket its manifest from the map of the cluster.
    ///
    /// # Errors
    /// `NotFound`; `Disk` and nothing was changed.
    pub fn follow_manifest(
        &self,
        name: &str,
        keeper: &ManifestKeeper,
    ) -> Result<(), RegistryError> {
        let _one_at_a_time = self.change.lock();
        let bucket = self.existing(name)?;
        if self.keeper(name) == *keeper {
            return Ok(());
        }
        self.keep_manifest(&bucket, keeper.clone())
    }

    fn keep_manifest(&self, bucket: &Bucket, keeper: ManifestKeeper) -> Result<(), RegistryError> {
        let name = bucket.name();
        let dir = bucket_dir(&self.setup.data_dir, name);
        // Durable before anybody sees it: see the invariants.
        write_manifest(&*self.setup.disk, &dir, &keeper)?;
        let manifest = keeper.manifest().clone();
        self.keepers.lock().insert(name.to_owned(), keeper);
        bucket.collections().set_manifest(manifest);
        Ok(())
    }

    /// Returns the manifest of a bucket with the state that is needed to change it.
    pub(super) fn keeper(&self, name: &str) -> ManifestKeeper {
        self.keepers.lock().get(name).cloned().unwrap_or_default()
    }
}
