//! The master key on the command line of tools that read encrypted files.

use std::time::Duration;

use clap::Args;
use kedge_encryption::{MasterKeyError, MasterKeys};
use kedge_kms::KeyRole;
use kedge_types::setting::SettingValue as _;

use crate::serve::encryption::of_sources;
use crate::settings::MaybeMasterKey;

/// The time for which a key management service is asked again.
const SERVICE_TIME_MAX: Duration = Duration::from_secs(10);

/// The flags of the server that name its master keys.
#[derive(Args, Clone, Debug)]
pub(crate) struct MasterKeyArgs {
    /// Source of the server's master key, which opens the data keys of encrypted files: as the setting
    /// encryption_master_key of the server, such as file:PATH
    #[arg(long = "encryption-master-key", value_name = "SOURCE")]
    #[arg(env = "KEDGE_ENCRYPTION_MASTER_KEY")]
    #[arg(default_value = "", hide_default_value = true, value_parser = MaybeMasterKey::read)]
    current: MaybeMasterKey,
    /// Source of the master key before, as the setting encryption_previous_master_key of the server
    #[arg(long = "encryption-previous-master-key", value_name = "SOURCE")]
    #[arg(env = "KEDGE_ENCRYPTION_PREVIOUS_MASTER_KEY")]
    #[arg(default_value = "", hide_default_value = true, value_parser = MaybeMasterKey::read)]
    previous: MaybeMasterKey,
}

impl MasterKeyArgs {
    /// Gets the keys; `None` if none is given. A command or another system may be asked for them.
    pub(crate) fn load(&self) -> Result<Option<MasterKeys>, MasterKeyError> {
        // Tools only read.
        let role = KeyRole::Previous;
        of_sources(&self.current, &self.previous, role, SERVICE_TIME_MAX)
    }
}
