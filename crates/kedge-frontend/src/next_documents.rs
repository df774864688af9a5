//! Requests for the memory of documents whose commands come next.
//!
//! The documents of a large bucket are in no cache of the processor. A command that is alone waits for each cache line that it
//! needs. Of several commands that have been received together, the documents are requested first, so that their lines arrive
//! side by side.

use kedge_bucket::{Bucket, KeyHash};
use kedge_types::{DocKey, KeyBuffer, VbId};

/// The number of commands whose documents are requested at a time. A core of today's processors waits for 10 to 16 cache lines
/// at the same time.
pub(crate) const COMMANDS_AHEAD: usize = 16;

/// The documents of the next commands, as vBuckets and keys of requests.
///
/// They are requested in three steps, as the address of the hash table is in the vBucket, and that of a document in the hash
/// table.
pub(crate) struct NextDocuments<'b> {
    bucket: &'b Bucket,
    documents: [(VbId, &'b [u8]); COMMANDS_AHEAD],
    count: usize,
}

impl<'b> NextDocuments<'b> {
    pub(crate) fn new(bucket: &'b Bucket) -> Self {
        Self {
            bucket,
            documents: [(VbId(0), &[]); COMMANDS_AHEAD],
            count: 0,
        }
    }

    /// Adds a document, and requests its vBucket, unless there are [`COMMANDS_AHEAD`] documents.
    #[inline]
    pub(crate) fn add(&mut self, vb: VbId, key: &'b [u8]) {
        if let Some(next) = self.documents.get_mut(self.count) {
            *next = (vb, key);
            self.count += 1;
            self.bucket.documents().prefetch_vbucket(vb);
        }
    }

    /// As [`Self::add`], of a client that does not know vBuckets.
    #[inline]
    pub(crate) fn add_key(&mut self, key: &'b [u8]) {
        self.add(VbId::of_key(key, self.bucket.vbuckets()), key);
    }

    /// Requests the documents. `parse` makes the key of a document from that of its request. Returns the number of documents that
    /// have a key and a vBucket.
    pub(crate) fn request(
        &self,
        parse: impl for<'k> Fn(&[u8], &'k mut KeyBuffer) -> Option<&'k DocKey>,
    ) -> usize {
        let documents = self.bucket.documents();
        let mut hashes: [Option<KeyHash>; COMMANDS_AHEAD] = [None; COMMANDS_AHEAD];
        let mut buffer = KeyBuffer::EMPTY;
        for (hash, &(vb, key)) in hashes.iter_mut().zip(&self.documents[..self.count]) {
            *hash = parse(key, &mut buffer).and_then(|key| documents.prefetch_bucket(vb, key));
        }
        let mut count = 0;
        for (hash, &(vb, _)) in hashes.into_iter().zip(&self.documents) {
            if let Some(hash) = hash {
                documents.prefetch_document(vb, hash);
                count += 1;
            }
        }
        count
    }
}
