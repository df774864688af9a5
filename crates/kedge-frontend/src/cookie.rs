//! The cookies of parked commands.
//!
//! A cookie has 64 bits: front-end thread (10), connection slot (20), generation of the slot (29), command slot (5). A
//! slot's generation grows with each of its connections, so a late completion reaches no other connection.

use kedge_bucket::Cookie;
use kedge_types::limits::UNORDERED_COMMANDS_MAX;

use crate::limits::{CONNECTIONS_PER_THREAD_MAX, THREADS_MAX};

const COMMAND_BITS: u32 = 5;
const GENERATION_BITS: u32 = 29;
const SLOT_BITS: u32 = 20;
const THREAD_BITS: u32 = 10;

const _: () = assert!(COMMAND_BITS + GENERATION_BITS + SLOT_BITS + THREAD_BITS == u64::BITS);
const _: () = assert!(UNORDERED_COMMANDS_MAX <= 1 << COMMAND_BITS);
const _: () = assert!(CONNECTIONS_PER_THREAD_MAX <= 1 << SLOT_BITS);
const _: () = assert!((THREADS_MAX as u32) < 1 << THREAD_BITS);

/// The id of a connection: its thread, its slot, and the generation of the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionId {
    pub(crate) thread: u16,
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl ConnectionId {
    /// The id, with the generation truncated to the bits of a cookie.
    pub(crate) fn new(thread: u16, slot: usize, generation: u32) -> Self {
        let slot = u32::try_from(slot).expect("a slab has fewer connections than the limit");
        Self {
            thread,
            slot,
            generation: generation & ((1 << GENERATION_BITS) - 1),
        }
    }

    /// The cookie of the command in `slot` of this connection.
    pub(crate) fn cookie(self, command: u8) -> Cookie {
        let mut bits = u64::from(self.thread);
        bits = bits << SLOT_BITS | u64::from(self.slot);
        bits = bits << GENERATION_BITS | u64::from(self.generation);
        Cookie(bits << COMMAND_BITS | u64::from(command))
    }

    /// The connection and command slot that a cookie names.
    pub(crate) fn of(cookie: Cookie) -> (Self, u8) {
        let mut bits = cookie.0;
        let mut take = |count: u32| {
            let field = bits & ((1 << count) - 1);
            bits >>= count;
            field
        };
        let command = take(COMMAND_BITS) as u8;
        let generation = take(GENERATION_BITS) as u32;
        let slot = take(SLOT_BITS) as u32;
        let thread = take(THREAD_BITS) as u16;
        (
            Self {
                thread,
                slot,
                generation,
            },
            command,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn cookie_round_trip(
            thread in 0..THREADS_MAX,
            slot in 0..CONNECTIONS_PER_THREAD_MAX as usize,
            generation: u32,
            command in 0..UNORDERED_COMMANDS_MAX as u8,
        ) {
            let id = ConnectionId::new(thread, slot, generation);
            prop_assert_eq!(ConnectionId::of(id.cookie(command)), (id, command));
        }
    }
}
