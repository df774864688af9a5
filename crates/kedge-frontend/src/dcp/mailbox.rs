//! How streams reach the front-end thread of their connection.

use std::sync::Arc;

use kedge_bucket::StreamNotify;
use kedge_sync::{RankedMutex, ranks::MailboxReady};
use kedge_types::VbId;

use crate::cookie::ConnectionId;
use crate::inbox::{FrontEndMessage, FrontEnds};

/// The vBuckets of a connection that have something new. The thread is told when the first one comes, and hears of all
/// that came until it looks.
pub(crate) struct Mailbox {
    id: ConnectionId,
    front_ends: Arc<FrontEnds>,
    ready: RankedMutex<MailboxReady, Vec<VbId>>,
}

impl Mailbox {
    pub(crate) fn new(id: ConnectionId, front_ends: Arc<FrontEnds>) -> Self {
        Self {
            id,
            front_ends,
            ready: RankedMutex::default(),
        }
    }

    /// Takes all; `read` is empty, and swapped in.
    pub(crate) fn take(&self, read: &mut Vec<VbId>) {
        std::mem::swap(&mut *self.ready.lock(), read);
    }
}

impl StreamNotify for Mailbox {
    fn ready(&self, vb: VbId) {
        let is_first = {
            let mut ready = self.ready.lock();
            ready.push(vb);
            ready.len() == 1
        };
        if is_first {
            let message = FrontEndMessage::StreamsReady(self.id);
            self.front_ends.send(self.id.thread, message);
        }
    }
}
