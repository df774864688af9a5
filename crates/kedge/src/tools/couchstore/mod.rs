//! The common parts of the commands about couchstore files: opening files, keys, errors and exit codes.

pub(crate) mod check;
pub(crate) mod dump;
mod header;
pub(crate) mod keyrings;
mod keys;
mod read_only;
mod text;

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use kedge_couchstore::{Options, Snapshot};
use kedge_encryption::KeyringError;

use self::keyrings::FileKeys;
use self::keys::EncryptionKeyError;
use super::master_key::MasterKeyArgs;

/// The memory for interior nodes, in bytes: a tool reads each node once, and has little use for a cache.
const CACHE_BYTES_MAX: usize = 8 << 20;

/// Keys of encrypted files.
#[derive(Args, Clone, Debug)]
pub(crate) struct EncryptionKeyArgs {
    /// Key of encrypted files: its name, and 32 bytes in hex or base64, or @FILE with the key. May be repeated
    #[arg(long = "encryption-key", value_name = "NAME=KEY")]
    #[arg(env = "KEDGE_ENCRYPTION_KEY", hide_env_values = true)]
    keys: Vec<String>,
    /// Keyring of encrypted files that are not in the directory of their bucket, which has it as encryption.keys
    #[arg(long = "encryption-keyring", value_name = "FILE")]
    keyring: Option<PathBuf>,
    #[command(flatten)]
    master: MasterKeyArgs,
}

/// The reason why a command about a file failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum FileError {
    /// Damage, or an I/O error.
    #[error(transparent)]
    Store(#[from] kedge_couchstore::Error),
    /// The file is encrypted, and its key was not given, or is not in the keyring.
    #[error("{} is encrypted with the key {key_id:?}; {remedy}", file.display())]
    KeyNeeded {
        /// The file.
        file: PathBuf,
        /// The name of the key.
        key_id: String,
        /// The flag that gives it.
        remedy: String,
    },
    /// The keyring cannot be read.
    #[error(transparent)]
    Keyring(#[from] KeyringError),
    /// The master key cannot be had.
    #[error("{0}")]
    MasterKey(String),
    /// Damage that was already reported.
    #[error("{} is damaged in {places} places; their content is left out", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
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
            Self::Damaged { .. } | Self::Keyring(KeyringError::Damaged { .. }) => 1,
            _ => 2,
        }
    }
}

impl EncryptionKeyArgs {
    fn file_keys(&self) -> Result<FileKeys, FileError> {
        let given = keys::parse_all(&self.keys)?;
        Ok(FileKeys::new(
            given,
            self.master.clone(),
            self.keyring.clone(),
        ))
    }
}

/// Opens a file without write permission.
fn open(path: &Path, options: &Options) -> Result<Snapshot, FileError> {
    let file = read_only::open(path).map_err(kedge_couchstore::Error::from)?;
    Ok(Snapshot::of_file(file, path, options)?)
}
