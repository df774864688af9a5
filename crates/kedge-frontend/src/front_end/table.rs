//! The connections of a front-end thread.

use slab::Slab;

use crate::connection::FrontEndConnection;
use crate::cookie::ConnectionId;

/// A connection slot in use.
struct LiveConnectionSlot {
    generation: u32,
    connection: FrontEndConnection,
}

/// The connections of a front-end thread, by slot. An id names a slot and its generation, so that no late message reaches
/// another connection in the same slot.
#[derive(Default)]
pub(super) struct ConnectionTable {
    slots: Slab<LiveConnectionSlot>,
    generation: u32,
}

impl ConnectionTable {
    /// The slot that the next connection gets.
    pub(super) fn next_slot(&self) -> usize {
        self.slots.vacant_key()
    }

    /// The id of the next connection.
    pub(super) fn next_id(&mut self, thread: u16) -> ConnectionId {
        self.generation = self.generation.wrapping_add(1);
        ConnectionId::new(thread, self.next_slot(), self.generation)
    }

    /// Adds the connection with [`Self::next_id`].
    pub(super) fn insert(&mut self, id: ConnectionId, connection: FrontEndConnection) {
        let slot = self.slots.insert(LiveConnectionSlot {
            generation: id.generation,
            connection,
        });
        assert_eq!(slot, id.slot as usize, "the slot of a new connection");
    }

    /// The slot of a connection, if that is still open.
    pub(super) fn find(&self, id: ConnectionId) -> Option<usize> {
        let slot = id.slot as usize;
        let entry = self.slots.get(slot)?;
        (entry.generation == id.generation).then_some(slot)
    }

    /// The connection with this id, if that is still open.
    pub(super) fn by_id(&mut self, id: ConnectionId) -> Option<(usize, &mut FrontEndConnection)> {
        let slot = self.find(id)?;
        Some((slot, self.get_mut(slot)?))
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: usize) -> Option<&mut FrontEndConnection> {
        self.slots.get_mut(slot).map(|entry| &mut entry.connection)
    }

    pub(super) fn remove(&mut self, slot: usize) -> Option<FrontEndConnection> {
        self.slots.try_remove(slot).map(|entry| entry.connection)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &FrontEndConnection)> {
        let slots = self.slots.iter();
        slots.map(|(slot, entry)| (slot, &entry.connection))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut FrontEndConnection)> {
        let slots = self.slots.iter_mut();
        slots.map(|(slot, entry)| (slot, &mut entry.connection))
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = FrontEndConnection> {
        self.slots.drain().map(|entry| entry.connection)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }
}
