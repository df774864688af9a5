//! The order in which a front-end thread serves its connections, beside the events of their sockets.

use crate::connection::FrontEndConnection;

/// Number of turns with a single active connection after which the thread itself commits for it, as no other waits.
const SOLO_TURNS: u32 = 3;

/// Connections that are to be served although their sockets have no event.
#[derive(Default)]
pub(super) struct ServeQueue {
    /// In the next turn.
    next_turn: Vec<usize>,
    /// After the inbox was read, once for all messages to a connection.
    after_messages: Vec<usize>,
}

impl ServeQueue {
    pub(super) fn serve_next_turn(&mut self, slot: usize, connection: &mut FrontEndConnection) {
        if !connection.is_scheduled {
            connection.is_scheduled = true;
            self.next_turn.push(slot);
        }
    }

    pub(super) fn serve_after_messages(
        &mut self,
        slot: usize,
        connection: &mut FrontEndConnection,
    ) {
        if !connection.is_scheduled {
            connection.is_scheduled = true;
            self.after_messages.push(slot);
        }
    }

    /// Returns true if no connection is to be served in the next turn.
    pub(super) fn is_idle(&self) -> bool {
        self.next_turn.is_empty()
    }

    pub(super) fn take_next_turn(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.next_turn)
    }

    pub(super) fn take_after_messages(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.after_messages)
    }

    /// Takes the memory of the list that [`Self::take_after_messages`] returned.
    pub(super) fn reuse(&mut self, mut list: Vec<usize>) {
        if self.after_messages.is_empty() {
            list.clear();
            self.after_messages = list;
        }
    }
}

/// The number of active connections, turn by turn.
pub(super) struct Activity {
    turn: u64,
    /// Connections served in this turn.
    active: u32,
    last_active: usize,
    solo_turns: u32,
}

impl Activity {
    pub(super) fn new() -> Self {
        Self {
            turn: 0,
            active: 0,
            last_active: usize::MAX,
            solo_turns: 0,
        }
    }

    pub(super) fn begin_turn(&mut self) {
        self.turn += 1;
        self.active = 0;
    }

    /// A connection is served.
    pub(super) fn on_served(&mut self, slot: usize, connection: &mut FrontEndConnection) {
        if connection.last_turn != self.turn {
            connection.last_turn = self.turn;
            self.active += 1;
            if self.last_active != slot {
                self.last_active = slot;
                self.solo_turns = 0;
            }
        }
    }

    /// Ends the turn. Returns true if one connection alone was active for several turns.
    pub(super) fn end_turn(&mut self) -> bool {
        self.solo_turns = if self.active == 1 {
            self.solo_turns.saturating_add(1)
        } else {
            0
        };
        self.solo_turns > SOLO_TURNS
    }
}
