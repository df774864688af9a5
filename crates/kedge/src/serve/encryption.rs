//! The master key of encryption at rest.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use kedge_disk::Disk;
use kedge_encryption::{
    KEYRING_FILE, Keyring, KeyringError, MasterKey, MasterKeyError, MasterKeySource, MasterKeys,
};

use crate::settings::{MaybeMasterKey, Settings};

/// Gets the master key of the settings, if there is one.
pub(super) fn master_keys(settings: &Settings) -> Result<Option<MasterKeys>, MasterKeyError> {
    let keys = of_sources(
        &settings.encryption_master_key,
        &settings.encryption_previous_master_key,
    )?;
    if let Some(keys) = &keys {
        tracing::info!(
            master_key = keys.name(),
            "encryption at rest has a master key"
        );
    }
    Ok(keys)
}

/// Opens the keyring of the node, for the audit log; `None` without a master key.
pub(super) fn node_keyring(
    disk: &Arc<dyn Disk>,
    settings: &Settings,
    masters: Option<&MasterKeys>,
) -> Result<Option<Arc<Keyring>>, KeyringError> {
    let Some(masters) = masters else {
        return Ok(None);
    };
    let path = settings.data_dir.join(KEYRING_FILE);
    // Also for encrypted files of before, which a new master key has to keep readable.
    let keyring = Keyring::open(Arc::clone(disk), &path, masters)?;
    if settings.audit_log_encryption {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        keyring.enable(now.map_or(0, |since| since.as_secs()))?;
    } else {
        keyring.disable()?;
    }
    Ok(Some(Arc::new(keyring)))
}

/// Gets the master key, and the one before. Returns `None` without a current one.
pub(crate) fn of_sources(
    current: &MaybeMasterKey,
    previous: &MaybeMasterKey,
) -> Result<Option<MasterKeys>, MasterKeyError> {
    let Some(current) = load(current.0.as_ref())? else {
        return Ok(None);
    };
    let keys = MasterKeys::new(current);
    Ok(Some(match load(previous.0.as_ref())? {
        Some(previous) => keys.with_previous(previous),
        None => keys,
    }))
}

fn load(source: Option<&MasterKeySource>) -> Result<Option<Arc<dyn MasterKey>>, MasterKeyError> {
    let key = source.map(MasterKeySource::load).transpose()?;
    Ok(key.map(|key| Arc::new(key) as Arc<dyn MasterKey>))
}
