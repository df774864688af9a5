//! Comparing two trees without holding either: the sum of a hash of each entry does not depend on their order.
//!
//! Keys are unique in one tree and seqnos in the other, so the trees hold sets, and equal sums mean equal sets but for
//! one chance in about 2^128. The hashes have seeds of their own in each process, so no file can be made to collide.

use std::hash::BuildHasher as _;

use foldhash::quality::RandomState;

use crate::Entry;

/// Two hashes of 64 bits.
#[derive(Debug, Default)]
pub(super) struct Digest {
    high: RandomState,
    low: RandomState,
}

impl Digest {
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

/// What a tree adds up to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    digests: u128,
    entries: u64,
}

impl Sum {
    pub(super) fn add(&mut self, digest: u128) {
        self.digests = self.digests.wrapping_add(digest);
        self.entries += 1;
    }
}
