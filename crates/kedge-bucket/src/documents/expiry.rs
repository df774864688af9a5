//! The expiry of documents, limited by the maximum TTLs.

use super::component::DocumentCommands;
use kedge_types::{DocKey, Expiry, Now};

impl DocumentCommands {
    /// Converts an expiry of the protocol. The maximum TTL of the collection, or else of the bucket, limits it.
    pub(super) fn expiry(&self, now: Now, key: &DocKey, wire: u32) -> Expiry {
        let unix_secs = now.unix_secs();
        self.limited(now, key, Expiry::from_wire(wire, unix_secs))
    }

    /// Returns `expiry`, limited by the maximum TTL of the collection, or else of the bucket.
    pub(super) fn limited(&self, now: Now, key: &DocKey, expiry: Expiry) -> Expiry {
        let rule = || {
            let manifest = self.core.manifest();
            manifest.collection(key.collection())?.1.max_ttl
        };
        let of_collection = self.core.dynamic.has_collection_ttls().then(rule).flatten();
        self.core
            .dynamic
            .limited(expiry, of_collection, now.unix_secs())
    }
}
