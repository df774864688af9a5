//! The documents: keys of 21 bytes, private metadata of 18, bodies of 512 random bytes.
//!
//! Documents are numbered in the order of their first store. Their keys are in another order, as those of most
//! applications are.

use kedge_bench_common::random::Random;
use kedge_couchstore::{ContentMeta, Mutation, MutationBody};
use kedge_types::{RevSeqno, Seqno};

/// Bytes of a body.
pub const BODY_BYTES: usize = 512;
/// Bytes of a key.
pub const KEY_BYTES: usize = 21;
/// Bytes of the private metadata.
pub const META_BYTES: usize = 18;
/// Bytes of a document.
pub const DOCUMENT_BYTES: usize = BODY_BYTES + KEY_BYTES + META_BYTES;

/// A prime above the number of documents, by which a number is multiplied to get the one in its key.
const KEYS: u64 = 10_000_019;
const STEP: u64 = 7_368_787;

/// The first CAS, a time in nanoseconds since 1970, and the distance of the next mutation.
const FIRST_CAS: u64 = 0x17d0_0000_0000_0000;
const CAS_STEP: u64 = 20_000;

/// The key of a document.
pub type Key = [u8; KEY_BYTES];
type Meta = [u8; META_BYTES];

/// Returns the key of document number `number`.
#[must_use]
pub fn key(number: u32) -> Key {
    let mut key = *b"\0doc:0000000000000000";
    let mut left = u64::from(number) * STEP % KEYS;
    for digit in key.iter_mut().rev() {
        if left == 0 {
            break;
        }
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
    key
}

/// Returns the private metadata: CAS, expiry, flags, and the additions of version 1, a mark and the datatype.
fn meta(seqno: u64) -> Meta {
    let mut meta = [0; META_BYTES];
    let cas = FIRST_CAS + seqno * CAS_STEP;
    meta[..8].copy_from_slice(&cas.to_be_bytes());
    meta[12..16].copy_from_slice(&0x0200_0006_u32.to_be_bytes());
    meta[16] = 1;
    meta
}

/// Random bytes for the bodies of the largest batch.
#[derive(Debug)]
pub struct Bodies(Vec<u8>);

impl Bodies {
    /// Creates the bodies of batches of so many documents.
    #[must_use]
    pub fn new(documents: usize) -> Self {
        Bodies(Random::new(7).bytes(documents * BODY_BYTES))
    }

    fn body(&self, number: u64) -> &[u8] {
        let bodies = (self.0.len() / BODY_BYTES) as u64;
        let start = (number % bodies) as usize * BODY_BYTES;
        &self.0[start..start + BODY_BYTES]
    }
}

/// The memory of a batch apart from the bodies.
#[derive(Debug)]
pub struct Batch {
    first_seqno: u64,
    keys: Vec<Key>,
    metas: Vec<Meta>,
}

impl Batch {
    /// Creates mutations of these documents, with seqnos from `first_seqno` on.
    pub fn new(numbers: impl IntoIterator<Item = u32>, first_seqno: u64) -> Self {
        let keys: Vec<Key> = numbers.into_iter().map(key).collect();
        let metas = (0..keys.len() as u64)
            .map(|at| meta(first_seqno + at))
            .collect();
        Batch {
            first_seqno,
            keys,
            metas,
        }
    }

    /// Returns the mutations. The library compresses the bodies, as the original does when it gets them like this.
    #[must_use]
    pub fn mutations<'a>(&'a self, bodies: &'a Bodies) -> Vec<Mutation<'a>> {
        let each = self.keys.iter().zip(&self.metas).zip(self.first_seqno..);
        each.map(|((key, meta), seqno)| Mutation {
            key,
            seqno: Seqno(seqno),
            rev: RevSeqno(1 + seqno / 1_000_000),
            deleted: false,
            content_meta: ContentMeta::NOT_JSON,
            rev_meta: meta,
            body: MutationBody::Compress(bodies.body(seqno)),
        })
        .collect()
    }
}

/// Returns the vBucket's state after `seqno`.
#[must_use]
pub fn vbstate(seqno: u64) -> String {
    format!(
        "{{\"build\":\"kedge\",\"checkpoint_type\":\"Memory\",\"completed_seqno\":\"0\",\"failover_table\":\
         [{{\"id\":164183094318765,\"seq\":0}}],\"high_prepared_seqno\":\"0\",\"hlc_epoch\":\"1\",\
         \"max_cas\":\"{}\",\"max_deleted_seqno\":\"0\",\"max_visible_seqno\":\"{seqno}\",\
         \"might_contain_xattrs\":false,\"namespaces_supported\":true,\"on_disk_prepare_bytes\":\"0\",\
         \"on_disk_prepares\":\"0\",\"prepared_seqno\":\"0\",\"replication_topology\":[[\"ns_1@10.0.0.1\",\
         \"ns_1@10.0.0.2\"]],\"snap_end\":\"{seqno}\",\"snap_start\":\"{seqno}\",\"state\":\"active\",\
         \"version\":4}}",
        FIRST_CAS + seqno * CAS_STEP
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_and_are_not_in_document_order() {
        let mut keys: Vec<_> = (0..1000).map(key).collect();
        assert!(!keys.is_sorted());
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 1000);
        assert!(keys.iter().all(|key| key.starts_with(b"\0doc:")));
    }

    #[test]
    fn batch_has_the_given_mutations() {
        let (batch, bodies) = (Batch::new([5, 3], 10), Bodies::new(4));
        let mutations = batch.mutations(&bodies);
        let expected: [(&[u8], u64); 2] = [(&key(5), 10), (&key(3), 11)];
        let given: Vec<_> = mutations.iter().map(|m| (m.key, m.seqno.0)).collect();
        assert_eq!(given, expected);
        assert_ne!(mutations[0].body, mutations[1].body);
        assert_eq!(mutations[0].rev_meta.len(), META_BYTES);
    }
}
