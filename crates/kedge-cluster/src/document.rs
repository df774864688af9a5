//! Documents that nodes save and send to each other: JSON with a version.

use crate::ClusterError;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Reads a document of this version.
///
/// # Errors
/// `Damaged` when it is not such a document, `Version` when it has another version.
pub(crate) fn read<T: DeserializeOwned>(json: &[u8], supported: u32) -> Result<T, ClusterError> {
    #[derive(Deserialize)]
    struct VersionField {
        version: u32,
    }
    // The version is read first: a newer document may have fields that would count as damage here.
    let VersionField { version } = serde_json::from_slice(json).map_err(ClusterError::Damaged)?;
    if version != supported {
        return Err(ClusterError::Version {
            found: version,
            supported,
        });
    }
    serde_json::from_slice(json).map_err(ClusterError::Damaged)
}
