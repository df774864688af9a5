//! Data keys.

use std::fmt;

use zeroize::Zeroizing;

/// Length of AES-256 keys, in bytes.
pub const KEY_BYTES: usize = 32;

/// A key of 256 bits. Its memory is overwritten when it is dropped.
pub type Secret = Zeroizing<[u8; KEY_BYTES]>;

/// A key that data is encrypted with.
pub struct DataKey {
    id: String,
    secret: Secret,
    created_unix_secs: u64,
}

impl DataKey {
    /// Creates a key of random bytes with a random UUID.
    pub(crate) fn random(now_unix_secs: u64) -> Self {
        Self::new(random_uuid(), random_secret(), now_unix_secs)
    }

    pub(crate) fn new(id: String, secret: Secret, created_unix_secs: u64) -> Self {
        Self {
            id,
            secret,
            created_unix_secs,
        }
    }

    /// Returns the UUID, which files state in plain text.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the key itself.
    #[must_use]
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Returns the time of its creation.
    #[must_use]
    pub fn created_unix_secs(&self) -> u64 {
        self.created_unix_secs
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DataKey({})", self.id)
    }
}

pub(crate) fn random_secret() -> Secret {
    let mut secret = Secret::new([0; KEY_BYTES]);
    getrandom::fill(&mut *secret).expect("the system has random numbers");
    secret
}

/// Returns a UUID of version 4.
fn random_uuid() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    let random = u128::from_be_bytes(bytes);
    let number = (random & !(0xf << 76) & !(0x3 << 62)) | (4 << 76) | (2 << 62);
    let hex = format!("{number:032x}");
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_keys_are_uuids_of_version_4() {
        let (a, b) = (DataKey::random(5), DataKey::random(5));
        assert_ne!(a.id(), b.id());
        assert_ne!(a.secret(), b.secret());
        for key in [&a, &b] {
            let lengths: Vec<usize> = key.id().split('-').map(str::len).collect();
            assert_eq!(lengths, [8, 4, 4, 4, 12]);
            assert_eq!(&key.id()[14..15], "4");
            assert!("89ab".contains(&key.id()[19..20]), "{}", key.id());
        }
    }

    #[test]
    fn debug_output_has_no_secret() {
        let key = DataKey::new("id".to_owned(), Secret::new([0xab; KEY_BYTES]), 1);
        assert_eq!(format!("{key:?}"), "DataKey(id)");
    }
}
