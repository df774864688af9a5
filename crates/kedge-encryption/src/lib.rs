#![doc = include_str!("../README.md")]

mod cipher;
mod key;
mod keyring;
mod master;

pub use cipher::{OpenFailed, PartCipher};
pub use key::{DataKey, KEY_BYTES, Secret};
pub use keyring::{KEYRING_FILE, KeySet, Keyring, KeyringDamage, KeyringError, KeyringFile};
pub use master::{
    LocalMasterKey, MasterKey, MasterKeyDetail, MasterKeyError, MasterKeyInfo, MasterKeySource,
    MasterKeys, SecretFormError,
};
