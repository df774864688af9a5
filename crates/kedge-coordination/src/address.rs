//! The address of a store, by which it is opened.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use crate::embedded::{Embedded, EmbeddedOptions};
use crate::etcd::{Etcd, EtcdConfig};
use crate::{CoordinationError, Coordinator, StorePosition};

/// The beginning of the address of a store in a directory.
const EMBEDDED: &str = "embedded:";

/// The address of a store: `etcd://HOST:PORT[,HOST:PORT...]/PREFIX[?OPTION=VALUE&...]` or `embedded:DIR`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreAddress {
    /// A store in etcd.
    Etcd(EtcdConfig),
    /// A store in a directory, for the processes of one machine.
    Embedded(PathBuf),
}

impl StoreAddress {
    /// Opens the store. `seen` is the newest position that an earlier handle has seen. A store in etcd is not connected
    /// before the first call.
    ///
    /// # Errors
    /// Those of [`Embedded::open`] and [`Etcd::new`].
    pub fn open(
        &self,
        seen: Option<StorePosition>,
    ) -> Result<Arc<dyn Coordinator>, CoordinationError> {
        Ok(match self {
            Self::Etcd(config) => Arc::new(Etcd::new(config.clone(), seen)?),
            Self::Embedded(dir) => {
                let options = EmbeddedOptions { seen };
                Arc::new(Embedded::open(dir, options)?)
            }
        })
    }

    /// Returns whether several machines may share the store.
    #[must_use]
    pub const fn is_remote(&self) -> bool {
        matches!(self, Self::Etcd(_))
    }
}

impl From<&Path> for StoreAddress {
    fn from(dir: &Path) -> Self {
        Self::Embedded(dir.to_owned())
    }
}

impl FromStr for StoreAddress {
    type Err = CoordinationError;

    fn from_str(url: &str) -> Result<Self, CoordinationError> {
        match url.strip_prefix(EMBEDDED) {
            Some("") => Err(CoordinationError::Invalid(format!(
                "{EMBEDDED} is followed by a directory"
            ))),
            Some(dir) => Ok(Self::Embedded(dir.into())),
            None => url.parse().map(Self::Etcd),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_kinds_are_parsed() {
        let embedded: StoreAddress = "embedded:data/store".parse().expect("it is valid");
        assert_eq!(embedded, Path::new("data/store").into());
        assert!(!embedded.is_remote());
        let etcd: StoreAddress = "etcd://a:1/p".parse().expect("it is valid");
        assert!(etcd.is_remote());
        for wrong in ["embedded:", "a:1/p", "etcd://a:1"] {
            let error = wrong.parse::<StoreAddress>().expect_err(wrong);
            assert!(matches!(error, CoordinationError::Invalid(_)), "{error}");
        }
    }

    #[test]
    fn opened_store_is_that_of_the_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let address = StoreAddress::from(dir.path());
        let patience = std::time::Duration::from_secs(10);
        let first = address.open(None).expect("it is opened");
        let put = crate::Transaction::new().put("key", "value");
        first.transact(&put, patience).expect("it is put");
        let second = address.open(first.seen()).expect("it is opened");
        let snapshot = second.read(patience).expect("it is read");
        assert_eq!(snapshot.entry("key").expect("it exists").value, b"value");
    }
}
