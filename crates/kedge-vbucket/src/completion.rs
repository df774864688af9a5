//! Parked commands and their completions.

use crate::item::Item;
use crate::results::{KeyFigures, Meta, Mutated, ObserveState};
use crate::scanned::ScanPart;
use kedge_types::{Cas, DurabilityLevel, Seqno, Status};

/// The identifier of a parked command. The caller assigns the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cookie(pub u64);

/// The result of a parked command.
#[derive(Clone, Debug)]
pub enum Completion {
    /// A SyncWrite has ended, or another mutation that needed the document from the disk. `item` is the current
    /// document, or `None` after a failure.
    SyncWrite {
        /// The result for the client.
        result: Result<Mutated, Status>,
        /// The committed document or tombstone.
        item: Option<Item>,
    },
    /// A counter that had to be read from the disk was changed.
    Counter {
        /// The result for the client, with the new value.
        result: Result<(Mutated, u64), Status>,
    },
    /// A document was read from the disk, and locked if that was requested.
    Read {
        /// The document with its value, and the CAS for the client.
        result: Result<(Item, Cas), Status>,
    },
    /// The metadata of a document or tombstone was read from the disk.
    Meta {
        /// The metadata.
        result: Result<Meta, Status>,
    },
    /// The statistics of a key that had to be compared with the disk.
    Key {
        /// The statistics of the key.
        result: Result<KeyFigures, Status>,
    },
    /// OBSERVE had to read the disk.
    Observed {
        /// The persistence state of the key, and its CAS.
        result: Result<(ObserveState, Cas), Status>,
    },
    /// The keys were listed from the disk.
    Keys {
        /// The keys in order, without collection prefix.
        result: Result<Vec<Box<[u8]>>, Status>,
    },
    /// A range scan was created.
    ScanMade {
        /// The id of the scan.
        result: Result<[u8; 16], Status>,
    },
    /// A range scan has returned a part.
    Scanned {
        /// The keys or documents found.
        result: Result<ScanPart, Status>,
    },
    /// A file for another node was opened, or a part of it was read.
    FileRead {
        /// The extras and the value of the response.
        result: Result<(Vec<u8>, Vec<u8>), Status>,
    },
    /// A wait without a value has ended, for example for a seqno to be persisted.
    Persisted(Result<(), Status>),
}

/// A parked command that has ended.
#[derive(Clone, Debug)]
pub struct CompletedCommand {
    /// The cookie of the command.
    pub cookie: Cookie,
    /// The result.
    pub completion: Completion,
    /// The level of a committed SyncWrite.
    pub committed: Option<DurabilityLevel>,
    /// The start, in nanoseconds of the monotonic clock.
    pub began_ns: u64,
}

/// The client that waits for a prepare, and its deadline.
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
    /// The write whose response is delayed, see [`crate::Step::delay_response`]. `None` for an explicit wait.
    pub(crate) write: Option<(Mutated, Item)>,
}

impl PersistWaiter {
    /// Ends the wait. A write with a delayed response has already succeeded, so it succeeds whatever `result` is.
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
