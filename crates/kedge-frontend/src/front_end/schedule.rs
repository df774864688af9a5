//! The order in which a front-end thread serves its connections, beside the events of their sockets.

use std::collections::VecDeque;

use crate::connection::FrontEndConnection;
use crate::limits::HANDSHAKES_PER_TURN;

/// Number of turns with a single active connection after which the thread itself commits for it, as no other waits.
const SOLO_TURNS: u32 = 3;

/// Connections that are to be served although their sockets have no event.
#[derive(Default)]
pub(super) struct ServeQueue {
    /// In the next turn.
    next_turn: Vec<usize>,
    /// After the inbox was read, once for all messages to a connection.
    after_messages: Vec<usize>,
    /// After all others.
    handshakes: HandshakeQueue,
}

/// Connections whose TLS handshake goes on, in the order in which they had something to do. A turn serves some of them, so
/// that a storm of handshakes delays requests by no more than these.
#[derive(Default)]
struct HandshakeQueue {
    waiting: VecDeque<usize>,
    /// The number of those served in this turn.
    served: usize,
}

impl HandshakeQueue {
    /// Begins a turn. Returns the number of those that the turns before had no time for.
    fn begin_turn(&mut self) -> usize {
        self.served = 0;
        self.waiting.len()
    }

    /// The next one of this turn.
    fn pop(&mut self) -> Option<usize> {
        if self.served == HANDSHAKES_PER_TURN {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.served += 1;
        Some(next)
    }
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

    /// Serves a connection whose handshake goes on, after all others.
    pub(super) fn serve_handshake(&mut self, slot: usize, connection: &mut FrontEndConnection) {
        if !connection.is_scheduled {
            connection.is_scheduled = true;
            self.handshakes.waiting.push_back(slot);
        }
    }

    /// Begins a turn. Returns the number of handshakes that the turns before had no time for.
    pub(super) fn begin_turn(&mut self) -> usize {
        self.handshakes.begin_turn()
    }

    /// The next handshake to serve in this turn; `None` if none waits, or the turn has had its share.
    pub(super) fn next_handshake(&mut self) -> Option<usize> {
        self.handshakes.pop()
    }

    #[cfg(test)]
    pub(super) fn waiting_handshakes(&self) -> usize {
        self.handshakes.waiting.len()
    }

    /// Returns true if no connection is to be served in the next turn.
    pub(super) fn is_idle(&self) -> bool {
        self.next_turn.is_empty() && self.handshakes.waiting.is_empty()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turn_serves_a_few_handshakes_in_the_order_of_their_arrival() {
        let mut queue = HandshakeQueue::default();
        queue.waiting.extend(0..HANDSHAKES_PER_TURN * 2 + 1);
        let mut served = Vec::new();
        for left in [HANDSHAKES_PER_TURN + 1, 1, 0, 0] {
            queue.begin_turn();
            served.extend(std::iter::from_fn(|| queue.pop()));
            assert_eq!(queue.waiting.len(), left);
        }
        assert!(served.into_iter().eq(0..HANDSHAKES_PER_TURN * 2 + 1));
        // One that comes later in the turn has its share of it.
        queue.begin_turn();
        assert_eq!(queue.pop(), None);
        queue.waiting.push_back(7);
        assert_eq!(queue.pop(), Some(7));
    }
}
