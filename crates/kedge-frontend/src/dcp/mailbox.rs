//! The mailbox through which streams wake the front-end thread of their connection.

use std::sync::Arc;

use kedge_bucket::StreamNotify;
use kedge_sync::{RankedMutex, ranks::MailboxReady};
use kedge_types::VbId;

use crate::cookie::ConnectionId;
use crate::inbox::{FrontEndMessage, FrontEnds};

/// The vBuckets of a connection that have new items. The first one wakes the thread, which then takes all.
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

    /// Takes all vBuckets. `read` is empty and takes the place of the list.
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
