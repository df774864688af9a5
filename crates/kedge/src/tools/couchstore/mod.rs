//! The common parts of the commands about couchstore files: opening files, keys, errors and exit codes.

pub(crate) mod check;
pub(crate) mod dump;
mod header;
mod keys;
mod read_only;
mod text;

use std::io;
use std::path::Path;

use clap::Args;
use kedge_couchstore::{OnDamage, Options, Snapshot};

use self::keys::EncryptionKeyError;

/// The memory for interior nodes, in bytes: a tool reads each node once, and has little use for a cache.
const CACHE_BYTES_MAX: usize = 8 << 20;

/// Keys of encrypted files.
#[derive(Args, Clone, Debug)]
pub(crate) struct EncryptionKeyArgs {
    /// Key of encrypted files: its name, and 32 bytes in hex or base64, or @FILE with the key. May be repeated
    #[arg(long = "encryption-key", value_name = "NAME=KEY")]
    #[arg(env = "KEDGE_ENCRYPTION_KEY", hide_env_values = true)]
    keys: Vec<String>,
}

/// The reason why a command about a file failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum FileError {
    /// Damage, or an I/O error.
    #[error(transparent)]
    Store(kedge_couchstore::Error),
    /// The file is encrypted, and its key was not given.
    #[error("{0}; give it with --encryption-key {1}=KEY")]
    KeyNeeded(kedge_couchstore::Error, String),
    /// Damage that was already reported.
    #[error("{} is damaged in {places} places; their content is left out", file.display())]
    Damaged {
        /// The file.
        file: std::path::PathBuf,
        /// The number of damaged places.
        places: u64,
    },
    /// A key is invalid.
    #[error(transparent)]
    Key(#[from] EncryptionKeyError),
    /// An error of standard output.
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
    /// The command line is invalid.
    #[error("{0}")]
    Usage(String),
}

impl FileError {
    /// Returns 1 if the file is damaged, and 2 if it cannot be read or the command line is invalid.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Store(error) if error.is_damage() => 1,
            Self::Damaged { .. } => 1,
            _ => 2,
        }
    }
}

impl From<kedge_couchstore::Error> for FileError {
    fn from(error: kedge_couchstore::Error) -> Self {
        match &error {
            kedge_couchstore::Error::KeyNeeded { key_id, .. } => {
                let key_id = key_id.clone();
                Self::KeyNeeded(error, key_id)
            }
            _ => Self::Store(error),
        }
    }
}

impl EncryptionKeyArgs {
    fn options(&self, on_damage: OnDamage) -> Result<Options, FileError> {
        Ok(Options {
            on_damage,
            keys: keys::parse_all(&self.keys)?,
            cache_bytes_max: CACHE_BYTES_MAX,
            cache_leaves: false,
        })
    }
}

/// Opens a file without write permission.
fn open(path: &Path, options: &Options) -> Result<Snapshot, FileError> {
    let file = read_only::open(path).map_err(kedge_couchstore::Error::from)?;
    Ok(Snapshot::of_file(file, path, options)?)
}
