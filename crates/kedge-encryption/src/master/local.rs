//! A master key in the memory of this process.

use std::fmt;

use aes_gcm::Nonce;
use aes_gcm::aead::AeadInOut;
use zeroize::Zeroizing;

use super::{MasterKey, MasterKeyError, MasterKeyInfo};
use crate::cipher::{NONCE_BYTES, cipher, derive, open};
use crate::key::{KEY_BYTES, Secret};

/// The data that is authenticated with each wrapped key.
const PURPOSE: &[u8] = b"kedge wrapped key";

/// A master key that a file, the environment, a command or a key management service has given. It wraps with AES-256-GCM and a
/// random nonce.
pub struct LocalMasterKey {
    name: String,
    secret: Secret,
    info: MasterKeyInfo,
}

impl LocalMasterKey {
    /// Takes the key.
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        // Derived, so that the name tells nothing about the key.
        let mark = derive(&secret, "kedge master key name", &[]);
        let hex: String = mark[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        Self {
            name: format!("local:{hex}"),
            secret,
            info: MasterKeyInfo::local("memory"),
        }
    }

    /// Returns the key with the description of the place that it comes from.
    #[must_use]
    pub fn described(self, info: MasterKeyInfo) -> Self {
        Self { info, ..self }
    }
}

impl MasterKey for LocalMasterKey {
    fn name(&self) -> &str {
        &self.name
    }

    fn wrap(&self, key: &Secret) -> Result<Vec<u8>, MasterKeyError> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).expect("the system has random numbers");
        let mut sealed = Secret::new(**key);
        let tag = cipher(&self.secret)
            .encrypt_inout_detached(&Nonce::from(nonce), PURPOSE, sealed.as_mut_slice().into())
            .expect("a key is shorter than AES-GCM's limit");
        Ok([&nonce[..], &*sealed, &*tag].concat())
    }

    fn unwrap(&self, wrapped: &[u8]) -> Result<Secret, MasterKeyError> {
        let split = wrapped.split_first_chunk::<NONCE_BYTES>();
        let (nonce, sealed) = split.ok_or(MasterKeyError::Unwrap)?;
        let mut key = Zeroizing::new(sealed.to_vec());
        open(
            &cipher(&self.secret),
            &Nonce::from(*nonce),
            PURPOSE,
            &mut key,
        )
        .map_err(|_| MasterKeyError::Unwrap)?;
        let key: &[u8; KEY_BYTES] = key
            .as_slice()
            .try_into()
            .map_err(|_| MasterKeyError::Unwrap)?;
        Ok(Secret::new(*key))
    }

    fn info(&self) -> MasterKeyInfo {
        self.info.clone()
    }
}

impl fmt::Debug for LocalMasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalMasterKey({})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapped_key_opens_with_its_master_key_only() {
        let master = LocalMasterKey::new(Secret::new([1; KEY_BYTES]));
        let other = LocalMasterKey::new(Secret::new([2; KEY_BYTES]));
        assert_ne!(master.name(), other.name());
        let key = Secret::new([3; KEY_BYTES]);
        let wrapped = master.wrap(&key).expect("it is here");
        assert_eq!(master.unwrap(&wrapped).expect("its own"), key);
        assert_ne!(
            wrapped,
            master.wrap(&key).expect("it is here"),
            "random nonces"
        );
        assert!(matches!(
            other.unwrap(&wrapped),
            Err(MasterKeyError::Unwrap)
        ));
        for bit in 0..wrapped.len() * 8 {
            let mut damaged = wrapped.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(master.unwrap(&damaged).is_err(), "bit {bit}");
        }
        for bytes in 0..wrapped.len() {
            assert!(master.unwrap(&wrapped[..bytes]).is_err(), "{bytes} bytes");
        }
    }

    #[test]
    fn debug_output_has_no_secret() {
        let master = LocalMasterKey::new(Secret::new([0xcd; KEY_BYTES]));
        assert_eq!(
            format!("{master:?}"),
            format!("LocalMasterKey({})", master.name())
        );
    }
}
