//! The bucket of the settings.

use kedge_bucket::BucketConfig;
use kedge_disk::Disk;
use kedge_node::registry::{RegistryError, change_stored, stored_config};

use crate::settings::{Effective, Settings};

/// Returns the settings of the bucket for its creation.
pub(crate) fn config(settings: &Settings) -> BucketConfig {
    let config = BucketConfig::new(&settings.bucket, settings.vbuckets, 0);
    settings.bucket_settings.apply(&config)
}

/// Applies explicitly given settings to an existing bucket before it is opened. Defaults are not applied: they must not
/// undo changes that were made while the server ran.
pub(super) fn apply_given(disk: &dyn Disk, effective: &Effective) -> Result<(), RegistryError> {
    let asked = config(&effective.settings);
    let data_dir = &effective.settings.data_dir;
    let Some(is) = stored_config(disk, data_dir, &asked.name)? else {
        return Ok(());
    };
    let mut change = effective.settings.bucket_settings.clone();
    change.retain_new(&is, &|name| effective.is_given(name));
    if !change.is_empty() {
        tracing::info!(
            bucket = is.name,
            ?change,
            "changed the settings of the bucket"
        );
        match change_stored(disk, data_dir, &is, &change) {
            Err(error) if error.is_no_space() => {
                tracing::error!(
                    bucket = is.name,
                    %error,
                    "the disk is full: the bucket keeps its old settings; give the new ones again when there is room"
                );
            }
            changed => changed?,
        }
    }
    if effective.is_given("vbuckets") && is.vbuckets != asked.vbuckets {
        tracing::warn!(
            bucket = is.name,
            asked = asked.vbuckets,
            keeps = is.vbuckets,
            "the number of vBuckets of an existing bucket cannot be changed"
        );
    }
    Ok(())
}
