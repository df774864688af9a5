//! The look ahead in pipelines of the binary protocol.

use kedge_protocol::binary::{ConnectionKind, Parse, parse_frame};

use crate::next_documents::{COMMANDS_AHEAD, NextDocuments};
use crate::session::Session;

impl Session {
    /// Requests the memory of the documents of the next commands, if there are several. Returns their number.
    pub(crate) fn look_ahead(&self, bytes: &[u8], body_bytes_max: usize) -> usize {
        let Some(bucket) = &self.bucket else {
            return COMMANDS_AHEAD;
        };
        let mut documents = NextDocuments::new(bucket);
        let mut at = 0;
        let mut count = 0;
        while count < COMMANDS_AHEAD
            && let Parse::Frame { request, consumed } = parse_frame(&bytes[at..], body_bytes_max)
        {
            at += consumed;
            if count == 0 && at == bytes.len() {
                return 1;
            }
            if !request.key.is_empty() {
                match self.kind() {
                    ConnectionKind::Couchbase => documents.add(request.vb, request.key),
                    ConnectionKind::Memcached => documents.add_key(request.key),
                }
            }
            count += 1;
        }
        documents.request(|key, buffer| self.protocol.document_key(key, buffer).ok());
        count
    }
}
