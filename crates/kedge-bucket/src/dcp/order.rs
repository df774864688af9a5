//! The order in which a backfill of some collections reads a file: key order or seqno order.
//!
//! Seqno order reads the whole file sequentially. Key order reads only the requested collections, but with random access,
//! and the receiver cannot resume before the end of the snapshot.

use kedge_replication::{Filter, StreamRequest};
use kedge_types::{CollectionId, Seqno};
use kedge_vbucket::VBucket;

/// The number of documents up to which key order is always used, because one step reads them all.
const ALWAYS_KEY_ORDER_ITEMS: u64 = 1_024;

/// Returns the collections that a backfill after the seqno `after` may read in key order.
pub(super) fn key_order(request: &StreamRequest, after: Seqno) -> Option<Vec<CollectionId>> {
    match &request.filter {
        Filter::Collections(ids)
            if request.unordered && !request.sync_writes && after == Seqno(0) =>
        {
            Some(ids.clone())
        }
        _ => None,
    }
}

/// Returns the number of documents in these collections.
pub(super) fn count_items(vbucket: &VBucket, collections: &[CollectionId]) -> u64 {
    let open = vbucket.collections().open().iter();
    let of = open.filter(|open| collections.contains(&open.id));
    of.map(|open| open.items).sum()
}

/// Returns whether reading `items` documents in key order costs less than reading all `documents` of the vBucket in seqno
/// order. It does if they are few, or at most half of the vBucket's documents.
pub(super) fn is_key_order_cheaper(items: u64, documents: u64) -> bool {
    items <= ALWAYS_KEY_ORDER_ITEMS || items <= documents / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_order_is_used_for_at_most_half_of_the_documents() {
        for (items, documents, pays) in [
            (0, 0, true),
            (ALWAYS_KEY_ORDER_ITEMS, ALWAYS_KEY_ORDER_ITEMS, true),
            (
                ALWAYS_KEY_ORDER_ITEMS + 1,
                ALWAYS_KEY_ORDER_ITEMS + 1,
                false,
            ),
            (
                ALWAYS_KEY_ORDER_ITEMS + 1,
                2 * ALWAYS_KEY_ORDER_ITEMS + 1,
                false,
            ),
            (
                ALWAYS_KEY_ORDER_ITEMS + 1,
                2 * ALWAYS_KEY_ORDER_ITEMS + 2,
                true,
            ),
            (1_000_000, 1_999_999, false),
            (1_000_000, 2_000_000, true),
        ] {
            assert_eq!(
                is_key_order_cheaper(items, documents),
                pays,
                "{items} of {documents}"
            );
        }
    }
}
