//! The filter of a stream: the JSON value of DCP_STREAM_REQ.

use kedge_types::{CollectionId, Seqno, Status};
use serde::{Deserialize, Serialize};

/// The part of a vBucket that a stream covers. The default is the whole vBucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamFilter {
    /// The collections manifest that the client has seen.
    pub manifest_uid: Option<u64>,
    /// The stream covers only these collections.
    pub collections: Option<Vec<CollectionId>>,
    /// The stream covers only this scope.
    pub scope: Option<u32>,
    /// The id of the stream among those of the vBucket.
    pub stream_id: Option<u16>,
    /// The purge seqno that the client last saw: tombstones up to it were purged.
    pub purge_seqno: Option<Seqno>,
    /// A request for a cache transfer before the stream.
    pub cache_transfer: Option<CacheTransferFilter>,
}

/// The part of the cache that a client asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheTransferFilter {
    /// The bytes of memory that the client has for it.
    pub free_memory: Option<u64>,
    /// True if keys without values are wanted too.
    pub all_keys: bool,
}

#[derive(Deserialize, Serialize, Default)]
#[serde(deny_unknown_fields)]
struct FilterJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    collections: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sid: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    purge_seqno: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cts: Option<CacheTransferFilter>,
}

fn hex32(text: &str) -> Result<u32, Status> {
    digits(text, 16).and_then(|number| u32::try_from(number).map_err(|_| Status::Invalid))
}

/// Parses a number without sign or spaces.
fn digits(text: &str, radix: u32) -> Result<u64, Status> {
    if text.starts_with('+') {
        return Err(Status::Invalid);
    }
    u64::from_str_radix(text, radix).map_err(|_| Status::Invalid)
}

impl StreamFilter {
    /// Reads the value of a request; an empty one asks for everything.
    ///
    /// # Errors
    /// [`Status::Invalid`] when it is not a JSON object of the known members, an id is not a hexadecimal number, the
    /// list of collections is empty or comes with a scope, or the stream id is 0.
    pub fn parse(value: &[u8]) -> Result<Self, Status> {
        if value.is_empty() {
            return Ok(Self::default());
        }
        let wire: FilterJson = serde_json::from_slice(value).map_err(|_| Status::Invalid)?;
        let collections = wire.collections.map(|ids| {
            let ids = ids.iter().map(|id| hex32(id).map(CollectionId));
            ids.collect::<Result<Vec<_>, _>>()
        });
        let filter = Self {
            manifest_uid: wire.uid.map(|uid| digits(&uid, 16)).transpose()?,
            collections: collections.transpose()?,
            scope: wire.scope.map(|id| hex32(&id)).transpose()?,
            stream_id: wire.sid,
            purge_seqno: wire
                .purge_seqno
                .map(|seqno| digits(&seqno, 10).map(Seqno))
                .transpose()?,
            cache_transfer: wire.cts,
        };
        let no_collection = filter.collections.as_ref().is_some_and(Vec::is_empty);
        let both = filter.collections.is_some() && filter.scope.is_some();
        if no_collection || both || filter.stream_id == Some(0) {
            return Err(Status::Invalid);
        }
        Ok(filter)
    }

    /// Encodes the value of a request; it is empty for the whole vBucket.
    #[must_use]
    pub fn to_value(&self) -> Vec<u8> {
        if *self == Self::default() {
            return Vec::new();
        }
        let ids =
            |ids: &Vec<CollectionId>| ids.iter().map(|id| format!("{:x}", id.get())).collect();
        let wire = FilterJson {
            uid: self.manifest_uid.map(|uid| format!("{uid:x}")),
            collections: self.collections.as_ref().map(ids),
            scope: self.scope.map(|scope| format!("{scope:x}")),
            sid: self.stream_id,
            purge_seqno: self.purge_seqno.map(|seqno| seqno.to_string()),
            cts: self.cache_transfer,
        };
        serde_json::to_vec(&wire).expect("strings and numbers are JSON")
    }
}
