//! Comparison of two trees without storing either: the sum of a hash of each entry is independent of their order.
//!
//! Keys are unique in one tree and seqnos in the other, so the trees are sets. Equal sums mean equal sets, except with
//! a probability of about 2^-128. The hashes have random seeds in each process, so no file can be crafted to collide.

use std::hash::BuildHasher as _;

use foldhash::quality::RandomState;

use crate::Entry;

/// Two hashes of 64 bits.
#[derive(Debug, Default)]
pub(super) struct EntryHash {
    high: RandomState,
    low: RandomState,
}

impl EntryHash {
    pub(super) fn of(&self, entry: &Entry) -> u128 {
        let fields = entry.fields();
        let all = (
            (fields.seqno, fields.rev, fields.body, fields.body_bytes),
            (fields.deleted, fields.content_meta),
            (entry.key(), entry.rev_meta()),
        );
        u128::from(self.high.hash_one(all)) << 64 | u128::from(self.low.hash_one(all))
    }
}

/// The sum of the hashes of a tree's entries.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SetHash {
    digests: u128,
    entries: u64,
}

impl SetHash {
    pub(super) fn add(&mut self, digest: u128) {
        self.digests = self.digests.wrapping_add(digest);
        self.entries += 1;
    }
}
