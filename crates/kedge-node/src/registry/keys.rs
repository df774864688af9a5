//! The data keys of a bucket, which the server's master key wraps.

use std::sync::Arc;

use kedge_bucket::BucketConfig;
use kedge_encryption::{KEYRING_FILE, Keyring};

use super::{RegistryError, RegistrySetup, bucket_dir};

/// Opens the keyring of a bucket, and makes it follow the settings. Returns `None` without a master key.
///
/// # Errors
/// `NoMasterKey` if the bucket needs one; `Keyring`, `Disk`.
pub(super) fn open_keyring(
    setup: &RegistrySetup,
    config: &BucketConfig,
) -> Result<Option<Arc<Keyring>>, RegistryError> {
    let path = bucket_dir(&setup.data_dir, &config.name).join(KEYRING_FILE);
    let Some(masters) = &setup.master_keys else {
        let is_encrypted = setup.disk.exists(&path)?;
        if !is_encrypted && !config.encryption.enabled {
            return Ok(None);
        }
        return Err(RegistryError::NoMasterKey {
            name: config.name.clone(),
            is_encrypted,
        });
    };
    let opened = Keyring::open(Arc::clone(&setup.disk), &path, masters).and_then(|keyring| {
        match config.encryption.enabled {
            true => keyring.enable(setup.clock.now().unix_secs())?,
            false => keyring.disable()?,
        }
        Ok(keyring)
    });
    let keyring = opened.map_err(|source| RegistryError::Keyring {
        name: config.name.clone(),
        source,
    })?;
    Ok(Some(Arc::new(keyring)))
}
