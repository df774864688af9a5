//! The local documents of a vBucket's file, by name. Couchstore file format, section 3.4.

use super::{
    CollectionStats, CommittedManifest, DroppedCollections, KvError, Scopes, StoredCollections,
    VbStateDocument,
};
use kedge_types::{CollectionId, Seqno};

/// Name of the [`VbStateDocument`]. A file without it does not belong to a vBucket.
pub const VBSTATE_NAME: &[u8] = b"_local/vbstate";
/// Name of the [`CommittedManifest`].
pub const MANIFEST_NAME: &[u8] = b"_local/collections/manifest";
/// Name of the [`StoredCollections`].
pub const OPEN_COLLECTIONS_NAME: &[u8] = b"_local/collections/open";
/// Name of the [`Scopes`].
pub const OPEN_SCOPES_NAME: &[u8] = b"_local/scope/open";
/// Name of the [`DroppedCollections`].
pub const DROPPED_COLLECTIONS_NAME: &[u8] = b"_local/collections/dropped";

/// A local document, whose name determines its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalDocument {
    /// The state of the vBucket.
    VbState(Box<VbStateDocument>),
    /// The version of the manifest.
    Manifest(CommittedManifest),
    /// The open collections.
    OpenCollections(StoredCollections),
    /// The open scopes.
    Scopes(Scopes),
    /// The collections whose documents are still to be purged.
    DroppedCollections(DroppedCollections),
    /// The statistics of one collection.
    Stats(CollectionId, CollectionStats),
}

impl LocalDocument {
    /// Decodes the value according to the name; `None` if the name is unknown. `high_seqno` is the update seqno of the
    /// header under which the document was read.
    ///
    /// # Errors
    /// [`KvError`] if the value does not have the format that its name requires.
    pub fn decode(name: &[u8], value: &[u8], high_seqno: Seqno) -> Result<Option<Self>, KvError> {
        Ok(Some(match name {
            VBSTATE_NAME => Self::VbState(Box::new(VbStateDocument::decode(value, high_seqno)?)),
            MANIFEST_NAME => Self::Manifest(CommittedManifest::decode(value)?),
            OPEN_COLLECTIONS_NAME => Self::OpenCollections(StoredCollections::decode(value)?),
            OPEN_SCOPES_NAME => Self::Scopes(Scopes::decode(value)?),
            DROPPED_COLLECTIONS_NAME => {
                Self::DroppedCollections(DroppedCollections::decode(value)?)
            }
            _ => match CollectionStats::collection_of(name) {
                Some(collection) => Self::Stats(collection, CollectionStats::decode(value)?),
                None => return Ok(None),
            },
        }))
    }
}
