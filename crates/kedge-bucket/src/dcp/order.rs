//! In which order a file is read for a stream of some collections: by key, or by seqno as for all others.
//!
//! By seqno the whole file is read, in the order in which it was written. By key only these collections are, but each of
//! their documents stands somewhere else, and the receiver gets no seqno to go on from before the end.

use kedge_replication::{Filter, StreamRequest};
use kedge_types::{CollectionId, Seqno};
use kedge_vbucket::VBucket;

/// Up to so many documents are read by key whatever else there is: it is over in one turn.
const FEW: u64 = 1_024;

/// The collections that a backfill behind `after` may read by key.
pub(super) fn by_key(request: &StreamRequest, after: Seqno) -> Option<Vec<CollectionId>> {
    match &request.filter {
        Filter::Collections(ids)
            if request.unordered && !request.sync_writes && after == Seqno(0) =>
        {
            Some(ids.clone())
        }
        _ => None,
    }
}

/// Documents of these collections.
pub(super) fn items_of(vbucket: &VBucket, collections: &[CollectionId]) -> u64 {
    let open = vbucket.collections().open().iter();
    let of = open.filter(|open| collections.contains(&open.id));
    of.map(|open| open.items).sum()
}

/// Whether reading `items` documents by key costs less than reading all of the vBucket's `documents` by seqno: they are
/// few, or half of them at most.
pub(super) fn pays_by_key(items: u64, documents: u64) -> bool {
    items <= FEW || items <= documents / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_of_a_vbucket_is_read_by_seqno() {
        for (items, documents, pays) in [
            (0, 0, true),
            (FEW, FEW, true),
            (FEW + 1, FEW + 1, false),
            (FEW + 1, 2 * FEW + 1, false),
            (FEW + 1, 2 * FEW + 2, true),
            (1_000_000, 1_999_999, false),
            (1_000_000, 2_000_000, true),
        ] {
            assert_eq!(
                pays_by_key(items, documents),
                pays,
                "{items} of {documents}"
            );
        }
    }
}
