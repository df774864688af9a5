//! Requests for the memory of documents whose commands come next.
//!
//! The documents of a large bucket are in no cache of the processor. A command that is alone waits for each cache line that it
//! needs. Of several commands that have been received together, the documents are requested first, so that their lines arrive
//! side by side.

use kedge_bucket::{Bucket, KeyHash};
use kedge_protocol::binary::{ConnectionKind, Parse, Request, parse_frame};
use kedge_types::{KeyBuffer, VbId};

use crate::session::Session;

/// The number of commands whose documents are requested at a time. A core of today's processors waits for 10 to 16 cache lines
/// at the same time.
const COMMANDS: usize = 16;

/// The document of a command that comes.
type NextDocument = Option<(VbId, KeyHash)>;

impl Session {
    /// Requests the memory of the documents of the next commands, if there are several. Returns their number.
    ///
    /// It has two steps, as the address of a document is in the hash table, which is requested first.
    pub(crate) fn look_ahead(&self, bytes: &[u8], body_bytes_max: usize) -> usize {
        let Some(bucket) = &self.bucket else {
            return COMMANDS;
        };
        let mut documents: [NextDocument; COMMANDS] = [None; COMMANDS];
        let mut buffer = KeyBuffer::EMPTY;
        let mut at = 0;
        let mut count = 0;
        while count < COMMANDS
            && let Parse::Frame { request, consumed } = parse_frame(&bytes[at..], body_bytes_max)
        {
            at += consumed;
            if count == 0 && at == bytes.len() {
                return 1;
            }
            documents[count] = self.request_table(bucket, &request, &mut buffer);
            count += 1;
        }
        for (vb, hash) in documents.into_iter().flatten() {
            bucket.documents().prefetch_document(vb, hash);
        }
        count
    }

    fn request_table(
        &self,
        bucket: &Bucket,
        request: &Request<'_>,
        buffer: &mut KeyBuffer,
    ) -> NextDocument {
        let key = self.protocol.document_key(request.key, buffer).ok()?;
        let vb = match self.kind() {
            ConnectionKind::Couchbase => request.vb,
            ConnectionKind::Memcached => key.vbucket(bucket.vbuckets()),
        };
        let hash = bucket.documents().prefetch_bucket(vb, key)?;
        Some((vb, hash))
    }
}
