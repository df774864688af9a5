//! Documents that nodes save and send to each other: JSON with a version.

use crate::{ClusterError, CompatLevel, Release};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Reads a document of this version.
///
/// # Errors
/// `Damaged` when it is not such a document, `Version` when it has another version, `Level` when it belongs to a cluster of
/// newer releases.
pub(crate) fn read<T: DeserializeOwned>(json: &[u8], supported: u32) -> Result<T, ClusterError> {
    #[derive(Deserialize)]
    struct Head {
        version: u32,
        #[serde(default)]
        level: CompatLevel,
    }
    // The head is read first: a newer document may have fields that would count as damage here.
    let Head { version, level } = serde_json::from_slice(json).map_err(ClusterError::Damaged)?;
    if version != supported {
        return Err(ClusterError::Version {
            found: version,
            supported,
        });
    }
    if level > CompatLevel::HIGHEST {
        Release::CURRENT.check(level, [])?;
    }
    serde_json::from_slice(json).map_err(ClusterError::Damaged)
}
