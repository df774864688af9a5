//! The share of the request memory that a connection has, or waits for.

use crate::cookie::ConnectionId;
use crate::limits::RECEIVE_BUFFER_BYTES;
use crate::request_memory::{ClientClass, FREE_BYTES, MemoryGrant};
use crate::server_context::ServerContext;

/// The request memory of a connection, for the request that is received or that a task executes.
#[derive(Default)]
pub(super) struct RequestGrant {
    grant: Option<MemoryGrant>,
    /// True if the request is not received further until memory is granted.
    is_waiting: bool,
}

impl RequestGrant {
    /// Returns true if a request of `need` bytes may be received further. Otherwise the connection waits for a grant.
    pub(super) fn may_receive(
        &mut self,
        need: usize,
        id: ConnectionId,
        class: ClientClass,
        shared: &ServerContext,
    ) -> bool {
        if need <= FREE_BYTES {
            self.release(shared);
            return true;
        }
        if self.grant.is_some_and(|grant| grant.bytes() >= need) {
            return true;
        }
        if self.is_waiting {
            return false;
        }
        // A line of the text protocol grows while it is received, and must not ask again for each byte.
        let bytes = match need {
            ..=RECEIVE_BUFFER_BYTES => need.next_power_of_two(),
            _ => need,
        };
        self.release(shared);
        self.grant = shared.request_memory.request(id, class, bytes);
        self.is_waiting = self.grant.is_none();
        self.grant.is_some()
    }

    /// Takes the grant that the connection waited for.
    pub(super) fn on_granted(&mut self, grant: MemoryGrant) {
        self.is_waiting = false;
        self.grant = Some(grant);
    }

    /// Gives the memory back.
    pub(super) fn release(&mut self, shared: &ServerContext) {
        if let Some(grant) = self.grant.take() {
            shared.request_memory.release(grant, &shared.front_ends);
        }
    }

    /// Gives the memory back and waits for none, as the connection ends.
    pub(super) fn end(&mut self, id: ConnectionId, shared: &ServerContext) {
        self.release(shared);
        if std::mem::take(&mut self.is_waiting) {
            shared.request_memory.cancel(id, &shared.front_ends);
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// The number of bytes that one receive may take, of a buffer with `room` bytes.
    pub(super) fn receive_max(
        &self,
        room: usize,
        class: ClientClass,
        shared: &ServerContext,
    ) -> usize {
        match self.grant {
            None if shared.request_memory.is_scarce(class) => FREE_BYTES.min(room),
            _ => room,
        }
    }
}
