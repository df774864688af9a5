//! The parked commands of one connection.
//!
//! Invariants:
//! * Without UnorderedExecution at most one command is in flight, and no other is executed before it has ended.
//! * With it, only reorderable commands are in flight together. One that is not reorderable, or has a barrier, is
//!   alone: it waits until none is in flight, and no other starts before it has ended.
//! * A retrieval of several keys in the text protocol has a slot for each document that it waits for, and is alone
//!   nevertheless, as each of its parts is.

use kedge_protocol::binary::Opcode;
use kedge_types::limits::UNORDERED_COMMANDS_MAX;

use super::parked_state::{PendingLookup, PendingObserve, PendingSubdocMutation, SuspendedCommand};
use super::{Composer, NegotiatedProtocol};

/// The form of the reply of a parked command.
#[derive(Debug)]
pub(crate) enum ReplyKind {
    /// CAS and mutation token.
    Mutation,
    /// CAS and metadata, of RETURN_META.
    ReturnMeta,
    /// CAS only, of TOUCH.
    CasOnly,
    /// The new value of a counter.
    Counter,
    /// The document, with its key if the opcode returns it.
    Document,
    /// The document as it is stored, with its extended attributes.
    WholeDocument,
    /// The document that was locked.
    Locked,
    /// The status of UNLOCK_KEY.
    Unlocked,
    /// The metadata of a document.
    Meta {
        /// True for version 2 of GET_META, whose reply has the datatype.
        with_datatype: bool,
    },
    /// Statistics of a key.
    KeyStats,
    /// The results of a sub-document lookup.
    Lookup(Box<PendingLookup>),
    /// The result of a sub-document mutation.
    SubdocMutation(Box<PendingSubdocMutation>),
    /// The id of a range scan.
    ScanCreated,
    /// A part of the results of a range scan; several answer one command.
    ScanPart,
    /// A range scan of which a part could not be composed.
    ScanFailed,
    /// A file for another node, or a part of it.
    FileRead,
    /// A list of keys.
    Keys,
    /// OBSERVE, which continues with its next key.
    Observe(Box<PendingObserve>),
    /// The status only.
    StatusOnly,
    /// The end of a login.
    Login,
    /// A command of the text protocol, which continues where it stopped.
    Text(Box<SuspendedCommand>),
    /// A document of a retrieval of the text protocol.
    TextDocument,
}

/// The fields of a request that its reply needs, and its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestTag {
    pub(crate) opcode: Opcode,
    pub(crate) opaque: u32,
    /// The start of its execution, nanoseconds of the monotonic clock.
    pub(crate) start_ns: u64,
}

impl RequestTag {
    /// The tag of a command of the text protocol, which has neither opcode nor opaque.
    pub(crate) fn of_text(start_ns: u64) -> Self {
        Self {
            opcode: Opcode::Noop,
            opaque: 0,
            start_ns,
        }
    }

    /// The composer of its reply.
    pub(crate) fn composer(self, protocol: &NegotiatedProtocol) -> Composer {
        protocol.composer_of(self.opcode.wire(), self.opaque, Some(self.opcode))
    }
}

/// A parked command.
#[derive(Debug)]
pub(crate) struct ParkedRequest {
    pub(crate) tag: RequestTag,
    pub(crate) kind: ReplyKind,
}

/// The parked commands of one connection.
#[derive(Debug, Default)]
pub(crate) struct InFlightRequests {
    slots: Vec<Option<ParkedRequest>>,
    count: u8,
    alone: bool,
}

const _: () = assert!(UNORDERED_COMMANDS_MAX <= u8::MAX as usize);

impl InFlightRequests {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns true if every command must wait.
    pub(crate) fn blocks_all(&self, unordered: bool) -> bool {
        self.count > 0
            && (!unordered || self.alone || usize::from(self.count) >= UNORDERED_COMMANDS_MAX)
    }

    /// The slot of the next parked command. It is known before the command runs, since another thread may complete the
    /// command before its call returns.
    pub(crate) fn next_slot(&self) -> u8 {
        let free = self.slots.iter().position(Option::is_none);
        free.unwrap_or(self.slots.len()) as u8
    }

    /// Parks a command in [`Self::next_slot`]. `alone`: no other may start before it ends.
    pub(crate) fn park(&mut self, request: ParkedRequest, alone: bool) {
        let slot = usize::from(self.next_slot());
        assert!(
            slot < UNORDERED_COMMANDS_MAX,
            "more commands in flight than there are slots"
        );
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[slot] = Some(request);
        self.count += 1;
        self.alone |= alone;
    }

    /// Returns true if a slot is free.
    pub(crate) fn has_room(&self) -> bool {
        usize::from(self.count) < UNORDERED_COMMANDS_MAX
    }

    /// The command in a slot.
    pub(crate) fn get_mut(&mut self, slot: u8) -> Option<&mut ParkedRequest> {
        self.slots.get_mut(usize::from(slot))?.as_mut()
    }

    /// Takes a command that ended out of its slot.
    pub(crate) fn take(&mut self, slot: u8) -> Option<ParkedRequest> {
        let request = self.slots.get_mut(usize::from(slot))?.take()?;
        self.count -= 1;
        if self.count == 0 {
            self.alone = false;
            // Freed, as there are many connections, and most do not park a command again soon.
            self.slots = Vec::new();
        }
        Some(request)
    }

    /// The number of commands in flight.
    pub(crate) fn len(&self) -> usize {
        usize::from(self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(opaque: u32) -> ParkedRequest {
        ParkedRequest {
            tag: RequestTag {
                opcode: Opcode::Set,
                opaque,
                start_ns: 0,
            },
            kind: ReplyKind::Mutation,
        }
    }

    #[test]
    fn ordered_connection_blocks_on_one_command_and_unordered_on_all_slots() {
        let mut in_flight = InFlightRequests::default();
        assert!(!in_flight.blocks_all(false));
        in_flight.park(request(1), false);
        assert!(in_flight.blocks_all(false));
        assert!(!in_flight.blocks_all(true));
        for opaque in 2..=UNORDERED_COMMANDS_MAX as u32 {
            assert!(!in_flight.blocks_all(true));
            in_flight.park(request(opaque), false);
        }
        assert!(in_flight.blocks_all(true), "all slots are taken");
        assert_eq!(in_flight.take(4).unwrap().tag.opaque, 5);
        assert_eq!(in_flight.next_slot(), 4, "a free slot is used again");
        assert!(in_flight.take(4).is_none(), "a command ends once");
        assert!(!in_flight.blocks_all(true));
    }

    #[test]
    fn exclusive_command_blocks_all_others() {
        let mut in_flight = InFlightRequests::default();
        in_flight.park(request(1), true);
        assert!(in_flight.blocks_all(true));
        assert!(in_flight.take(0).is_some());
        assert!(!in_flight.blocks_all(true));
        assert!(in_flight.is_empty());
    }
}
