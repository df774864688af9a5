//! The open streams of a connection.

use super::stream::VbStream;
use kedge_replication::{Source, SourceState, StreamId, StreamItem};
use std::collections::BTreeMap;

/// The open streams of a connection by id, which are the source of its DCP producer. Ended streams are removed.
#[derive(Debug, Default)]
pub struct ConnectionStreams(BTreeMap<StreamId, VbStream>);

impl ConnectionStreams {
    /// Adds a stream that was opened.
    pub fn insert(&mut self, id: StreamId, stream: VbStream) {
        self.0.insert(id, stream);
    }

    /// Handles the response to a SET_VBUCKET_STATE of a takeover, see [`VbStream::state_answered`].
    pub fn state_answered(&mut self, id: StreamId) {
        if let Some(stream) = self.0.get_mut(&id) {
            stream.state_answered();
        }
    }
}

impl Source for ConnectionStreams {
    fn read(
        &mut self,
        stream: StreamId,
        max_items: usize,
        max_bytes: usize,
        out: &mut Vec<StreamItem>,
    ) -> SourceState {
        let Some(found) = self.0.get_mut(&stream) else {
            return SourceState::Idle;
        };
        let state = found.read(max_items, max_bytes, out);
        if matches!(state, SourceState::Ended(_)) {
            self.0.remove(&stream);
        }
        state
    }

    fn close(&mut self, stream: StreamId) {
        self.0.remove(&stream);
    }
}
