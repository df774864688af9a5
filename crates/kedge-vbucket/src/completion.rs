//! Commands that were parked, and how they end.

use crate::item::Item;
use crate::results::{KeyFigures, Meta, Mutated, ObserveState};
use crate::scanned::ScanPart;
use kedge_types::{Cas, DurabilityLevel, Seqno, Status};

/// Identifies a parked command; the number has a meaning only for its giver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cookie(pub u64);

/// The end of a parked command.
#[derive(Clone, Debug)]
pub enum Completion {
    /// A SyncWrite ended, or another mutation that was parked: it needed the document from the disk first. `item` is
    /// the document now; `None` when it failed.
    SyncWrite {
        /// The answer for the client.
        result: Result<Mutated, Status>,
        /// The committed document or tombstone.
        item: Option<Item>,
    },
    /// A counter was changed that had to be read from the disk first.
    Counter {
        /// The answer for the client, and the new number.
        result: Result<(Mutated, u64), Status>,
    },
    /// A document was read from the disk, and locked if that was asked for.
    Read {
        /// The document with its value, and the CAS that the client is told.
        result: Result<(Item, Cas), Status>,
    },
    /// The metadata of a document or tombstone was read from the disk.
    Meta {
        /// The metadata.
        result: Result<Meta, Status>,
    },
    /// Statistics of a key had to look at the disk.
    Key {
        /// Statistics of the key.
        result: Result<KeyFigures, Status>,
    },
    /// OBSERVE had to look at the disk.
    Observed {
        /// The state of the key on disk, and its CAS.
        result: Result<(ObserveState, Cas), Status>,
    },
    /// Keys were listed from the disk.
    Keys {
        /// In order, without collection prefix.
        result: Result<Vec<Box<[u8]>>, Status>,
    },
    /// A range scan was made.
    ScanMade {
        /// Its id.
        result: Result<[u8; 16], Status>,
    },
    /// A part of a range scan.
    Scanned {
        /// The keys or documents found.
        result: Result<ScanPart, Status>,
    },
    /// A wait ended of which there is nothing to tell but whether it went well: for a seqno to be persisted, say.
    Persisted(Result<(), Status>),
}

/// A parked command that ended, and how long it took.
#[derive(Clone, Debug)]
pub struct CompletedCommand {
    /// Whose.
    pub cookie: Cookie,
    /// Its result.
    pub completion: Completion,
    /// The level, for a SyncWrite that was committed.
    pub committed: Option<DurabilityLevel>,
    /// When it began, in nanoseconds of the monotonic clock.
    pub began_ns: u64,
}

/// A client that waits for a prepare, and its deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientWaiter {
    pub(crate) cookie: Cookie,
    pub(crate) began_ns: u64,
    pub(crate) deadline_ns: u64,
}

/// A wait for a seqno to be persisted.
#[derive(Clone, Debug)]
pub(crate) struct PersistWaiter {
    pub(crate) seqno: Seqno,
    pub(crate) waiter: ClientWaiter,
    /// The write whose answer was held back, see [`crate::VBucket::hold_back`]; `None` for who asked for the wait.
    pub(crate) write: Option<(Mutated, Item)>,
}

impl PersistWaiter {
    /// Ends the wait. A write that was held back has succeeded long before, whatever becomes of the wait.
    pub(crate) fn end(self, result: Result<(), Status>) -> CompletedCommand {
        let completion = match self.write {
            Some((mutated, item)) => Completion::SyncWrite {
                result: Ok(mutated),
                item: Some(item),
            },
            None => Completion::Persisted(result),
        };
        let ClientWaiter {
            cookie, began_ns, ..
        } = self.waiter;
        CompletedCommand {
            cookie,
            completion,
            committed: None,
            began_ns,
        }
    }
}

pub(crate) fn ambiguous(waiter: ClientWaiter) -> CompletedCommand {
    sync_write_failed(waiter, Status::SyncWriteAmbiguous)
}

pub(crate) fn sync_write_failed(waiter: ClientWaiter, status: Status) -> CompletedCommand {
    CompletedCommand {
        cookie: waiter.cookie,
        completion: Completion::SyncWrite {
            result: Err(status),
            item: None,
        },
        committed: None,
        began_ns: waiter.began_ns,
    }
}
