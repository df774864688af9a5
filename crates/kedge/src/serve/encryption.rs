//! The master key of encryption at rest.

use std::sync::Arc;

use kedge_encryption::{MasterKey, MasterKeyError, MasterKeySource, MasterKeys};

use crate::settings::Settings;

/// Gets the master key of the settings, if there is one.
pub(super) fn master_keys(settings: &Settings) -> Result<Option<MasterKeys>, MasterKeyError> {
    let Some(current) = load(settings.encryption_master_key.0.as_ref())? else {
        return Ok(None);
    };
    let keys = MasterKeys::new(current);
    tracing::info!(
        master_key = keys.name(),
        "encryption at rest has a master key"
    );
    Ok(Some(
        match load(settings.encryption_previous_master_key.0.as_ref())? {
            Some(previous) => keys.with_previous(previous),
            None => keys,
        },
    ))
}

fn load(source: Option<&MasterKeySource>) -> Result<Option<Arc<dyn MasterKey>>, MasterKeyError> {
    let key = source.map(MasterKeySource::load).transpose()?;
    Ok(key.map(|key| Arc::new(key) as Arc<dyn MasterKey>))
}
