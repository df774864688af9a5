//! The master key of encryption at rest.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kedge_disk::Disk;
use kedge_encryption::{
    KEYRING_FILE, Keyring, KeyringError, MasterKey, MasterKeyError, MasterKeys,
};
use kedge_kms::KeyRole;

use crate::settings::{MaybeMasterKey, Settings};

/// Gets the master key of the settings, if there is one.
pub(super) fn master_keys(settings: &Settings) -> Result<Option<MasterKeys>, MasterKeyError> {
    let keys = of_sources(
        &settings.encryption_master_key,
        &settings.encryption_previous_master_key,
        KeyRole::Current,
        settings.encryption_master_key_timeout,
    )?;
    if let Some(keys) = &keys {
        tracing::info!(
            master_key = keys.name(),
            source = keys.info().source,
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

/// Gets the master key for a use, and the one before. Returns `None` without a current one. A key management service that does not
/// answer is asked again for `time_max`.
pub(crate) fn of_sources(
    current: &MaybeMasterKey,
    previous: &MaybeMasterKey,
    role: KeyRole,
    time_max: Duration,
) -> Result<Option<MasterKeys>, MasterKeyError> {
    let load =
        |source: &MaybeMasterKey, role| -> Result<Option<Arc<dyn MasterKey>>, MasterKeyError> {
            let opened = source.0.as_ref().map(|source| source.open(role, time_max));
            opened.transpose()
        };
    let Some(current) = load(current, role)? else {
        return Ok(None);
    };
    let keys = MasterKeys::new(current);
    Ok(Some(match load(previous, KeyRole::Previous)? {
        Some(previous) => keys.with_previous(previous),
        None => keys,
    }))
}
