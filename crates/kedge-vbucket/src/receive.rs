//! Changes that a replica or pending vBucket receives from another node.
//!
//! Invariants:
//! * Seqnos, CAS values and revisions are those of the sender. Seqnos ascend and are within the announced snapshot.
//! * A document completes the prepare of its key, because the sender accepts no write of the key before. In a disk
//!   snapshot, a commit arrives as the committed document or a newer one. A newer prepare, or its completion, also
//!   shows that the prepare was completed.
//! * The visible and completed seqnos of a disk snapshot apply from its end on.

use crate::checkpoint::Change;
use crate::durability::Prepare;
use crate::failover::FailoverTable;
use crate::item::{Deletion, Item, ItemMeta};
use crate::manifest::receive_event;
use crate::snapshot::{DcpSnapshot, IncomingStream};
use crate::system_event::SystemEvent;
use crate::vbucket::VBucket;
use kedge_types::{Cas, Expiry, Now, Seqno, Status};
use std::fmt;

/// A received change.
#[derive(Clone, Debug)]
pub enum Received {
    /// A document or tombstone. In a disk snapshot it may be a committed one.
    Document(Item),
    /// A prepare of a SyncWrite.
    Prepare(Item),
    /// The commit of a prepare.
    Commit {
        /// The stored key.
        key: Box<[u8]>,
        /// The seqno of the prepare.
        prepared: Seqno,
        /// The seqno of the commit.
        seqno: Seqno,
    },
    /// The abort of a prepare.
    Abort {
        /// The stored key.
        key: Box<[u8]>,
        /// The seqno of the prepare.
        prepared: Seqno,
        /// The seqno of the abort.
        seqno: Seqno,
    },
    /// A change of collections or scopes.
    System {
        /// The event.
        event: SystemEvent,
        /// The seqno of the event.
        seqno: Seqno,
    },
    /// An advance to this seqno. There are no changes for this stream up to it.
    Advance(Seqno),
}

/// The error for an invalid received change. The vBucket is unchanged, and the stream must be restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The vBucket is neither replica nor pending, or has no stream.
    NotReceiving,
    /// A snapshot ends before its start or before the high seqno, or starts before the previous one has ended.
    BadSnapshot {
        /// The first seqno of the snapshot.
        start: Seqno,
        /// The last seqno of the snapshot.
        end: Seqno,
    },
    /// A seqno is not above the high seqno, or not within the snapshot.
    Order {
        /// The high seqno.
        high: Seqno,
        /// The received seqno.
        seqno: Seqno,
    },
    /// A commit or abort has no prepare.
    NoPrepare {
        /// The seqno of the prepare.
        prepared: Seqno,
    },
    /// A prepare has no level, or its key has another prepare in flight.
    BadPrepare {
        /// The seqno of the prepare.
        prepared: Seqno,
    },
}

impl ReceiveError {
    /// Returns the status for the sender.
    #[must_use]
    pub fn status(self) -> Status {
        match self {
            Self::NotReceiving => Status::NotMyVbucket,
            Self::BadSnapshot { .. } | Self::Order { .. } => Status::OutOfRange,
            Self::NoPrepare { .. } | Self::BadPrepare { .. } => Status::Invalid,
        }
    }
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReceiving => f.write_str("the vBucket has no open stream"),
            Self::BadSnapshot { start, end } => {
                write!(
                    f,
                    "the snapshot from {start} to {end} does not continue the stream"
                )
            }
            Self::Order { high, seqno } => {
                write!(f, "seqno {seqno} is out of order: the high seqno is {high}")
            }
            Self::NoPrepare { prepared } => {
                write!(f, "there is no prepare at seqno {prepared}")
            }
            Self::BadPrepare { prepared } => {
                write!(
                    f,
                    "the prepare at seqno {prepared} has no durability level, or its key has another prepare"
                )
            }
        }
    }
}

impl std::error::Error for ReceiveError {}

impl VBucket {
    /// Accepts a stream of another node, and adopts the failover table of that node.
    ///
    /// # Errors
    /// [`ReceiveError::NotReceiving`] unless the vBucket is a replica or pending.
    pub fn begin_stream(&mut self, failover: FailoverTable) -> Result<(), ReceiveError> {
        let follows = self.store.state.is_follower();
        if !follows || self.is_deleted || self.store.unapplied.rewinding {
            return Err(ReceiveError::NotReceiving);
        }
        self.store.history.is_unwritten = false;
        if self.store.history.failover != failover {
            self.store.history.follow(failover);
            self.store.push_state();
        }
        self.stream = IncomingStream {
            is_open: true,
            first: self.store.history.high_seqno,
            last: self.store.history.high_seqno,
        };
        self.durability.passive.repeat_ack();
        Ok(())
    }

    /// Ends the stream. An interrupted snapshot stays incomplete until another stream has sent the rest.
    pub fn end_stream(&mut self) {
        self.stream = IncomingStream::default();
    }

    /// Returns whether the vBucket has an open stream.
    #[must_use]
    pub fn is_streaming(&self) -> bool {
        self.stream.is_open
    }

    /// Takes the seqno to acknowledge to the active node, if it has advanced.
    pub fn take_ack(&mut self) -> Option<Seqno> {
        if self.stream.is_open {
            self.durability.passive.take_ack()
        } else {
            None
        }
    }

    /// Returns whether the next acknowledgement waits for the disk.
    #[must_use]
    pub fn waits_for_disk(&self) -> bool {
        self.stream.is_open && self.durability.passive.waits_for_disk()
    }

    /// Starts a snapshot.
    ///
    /// # Errors
    /// [`ReceiveError::NotReceiving`], [`ReceiveError::BadSnapshot`].
    pub fn begin_snapshot(&mut self, snapshot: DcpSnapshot) -> Result<(), ReceiveError> {
        if !self.stream.is_open {
            return Err(ReceiveError::NotReceiving);
        }
        let DcpSnapshot { start, end, .. } = snapshot;
        if start > end
            || end < self.store.history.high_seqno
            || self.store.history.high_seqno < self.stream.last
        {
            return Err(ReceiveError::BadSnapshot { start, end });
        }
        (self.stream.first, self.stream.last) = (start, end);
        if end == self.store.history.high_seqno {
            return Ok(());
        }
        let behind = DcpSnapshot {
            start: self.store.history.high_seqno,
            ..snapshot
        };
        // A snapshot that was interrupted before its first change lacks nothing, and its end may never arrive.
        let torn = self
            .store
            .history
            .open
            .filter(|torn| torn.start < self.store.history.high_seqno);
        let open = behind.after(torn);
        self.store.history.begin_snapshot(open);
        self.store.changes.push(Change::Snapshot(Box::new(open)));
        Ok(())
    }

    /// Applies a received change.
    ///
    /// # Errors
    /// [`ReceiveError`]. The vBucket is unchanged.
    pub fn receive(&mut self, now: Now, received: Received) -> Result<(), ReceiveError> {
        if !self.stream.is_open {
            return Err(ReceiveError::NotReceiving);
        }
        let seqno = received.seqno();
        let high = self.store.history.high_seqno;
        if seqno <= high || !(self.stream.first..=self.stream.last).contains(&seqno) {
            return Err(ReceiveError::Order { high, seqno });
        }
        match received {
            Received::Document(item) => {
                self.store.history.clock.learn(item.cas(), now.unix_ns);
                self.store.history.high_seqno = seqno;
                let replaced = follow_document(self, item.clone());
                self.store
                    .changes
                    .push_over(Change::Document(item), replaced);
            }
            Received::Prepare(item) => {
                follow_prepare(self, item.clone())
                    .ok_or(ReceiveError::BadPrepare { prepared: seqno })?;
                self.store.history.clock.learn(item.cas(), now.unix_ns);
                self.store.history.high_seqno = seqno;
                self.store.changes.push(Change::Prepare(item));
            }
            Received::Commit { key, prepared, .. } => {
                let prepare = follow_commit(self, &key, prepared)
                    .ok_or(ReceiveError::NoPrepare { prepared })?;
                self.store.history.high_seqno = seqno;
                let item = prepare.item.with_seqno(seqno);
                let replaced = follow_document(self, item.clone());
                let change = Change::Commit { item, prepared };
                self.store.changes.push_over(change, replaced);
            }
            Received::Abort { key, prepared, .. } => {
                let prepare = follow_abort(self, &key, prepared)
                    .ok_or(ReceiveError::NoPrepare { prepared })?;
                self.store.history.high_seqno = seqno;
                let item = aborted(now, &key, seqno, prepare.as_ref());
                self.store.changes.push(Change::Abort { item, prepared });
            }
            Received::System { event, .. } => {
                self.store.history.high_seqno = seqno;
                // The CAS of an event is never returned to a client.
                let item = event.item(self.store.history.clock.last(), seqno);
                let replaced = receive_event(self, &event, seqno);
                self.store.changes.push_over(Change::System(item), replaced);
            }
            Received::Advance(_) => {
                self.store.history.high_seqno = seqno;
                self.store.changes.push(Change::Advance(seqno));
            }
        }
        reach(self, seqno);
        Ok(())
    }
}

/// Returns whether completions of prepares may be missing, or prepares of completions.
fn may_lack_ends(vb: &VBucket) -> bool {
    let history = &vb.store.history;
    history.is_in_disk_snapshot() || vb.replay.is_behind_torn_file(history.high_seqno)
}

/// Stores a document and completes the prepare of its key. Returns the seqno of the version that it replaced.
pub(crate) fn follow_document(vb: &mut VBucket, item: Item) -> Seqno {
    let hash = vb.store.documents.hash(item.key());
    vb.durability.prepares.take_of(hash, item.key());
    vb.store.history.see(item.seqno());
    vb.store.put(hash, item)
}

/// Adds a prepare. Returns `None` if it has no level, or if its key has another prepare that cannot be completed.
pub(crate) fn follow_prepare(vb: &mut VBucket, item: Item) -> Option<()> {
    let level = item.level()?;
    let hash = vb.store.documents.hash(item.key());
    if vb.durability.prepares.holds(hash, item.key()) {
        if !may_lack_ends(vb) {
            return None;
        }
        vb.durability.prepares.take_of(hash, item.key());
    }
    vb.store.collections.on_seqno(item.key(), item.seqno());
    let prepare = Prepare::inherited(hash, item, level);
    vb.durability.prepares.add(prepare);
    Some(())
}

/// Removes and returns the committed prepare.
pub(crate) fn follow_commit(vb: &mut VBucket, key: &[u8], prepared: Seqno) -> Option<Prepare> {
    let hash = vb.store.documents.hash(key);
    let prepare = vb.durability.prepares.take(hash, key, prepared)?;
    if !vb.store.history.is_in_disk_snapshot() {
        vb.durability.prepares.record_completed(prepared);
    }
    Some(prepare)
}

/// Removes and returns the aborted prepare. Returns `Some(None)` if a disk snapshot or file has dropped it.
pub(crate) fn follow_abort(
    vb: &mut VBucket,
    key: &[u8],
    prepared: Seqno,
) -> Option<Option<Prepare>> {
    let hash = vb.store.documents.hash(key);
    let found = vb.durability.prepares.take(hash, key, prepared);
    // The file may have dropped the prepare together with its collection.
    if found.is_none() && !may_lack_ends(vb) && !vb.store.collections.is_of_dropped(key) {
        return None;
    }
    if !vb.store.history.is_in_disk_snapshot() {
        vb.durability.prepares.record_completed(prepared);
    }
    // Another prepare of the key is an older one.
    Some(found.or_else(|| vb.durability.prepares.take_of(hash, key)))
}

/// Advances the high seqno to `seqno`. If a snapshot ends there, this is a consistent point.
pub(crate) fn reach(vb: &mut VBucket, seqno: Seqno) {
    let history = &mut vb.store.history;
    if let Some(ended) = history.reach(seqno) {
        vb.durability
            .complete_snapshot(&ended, seqno, history.persisted_seqno);
    }
}

/// Returns the tombstone of an abort. If the prepare is unknown, it has only the key.
fn aborted(now: Now, key: &[u8], seqno: Seqno, prepare: Option<&Prepare>) -> Item {
    let meta = ItemMeta {
        seqno,
        expiry: Expiry(u32::try_from(now.unix_secs()).unwrap_or(u32::MAX)),
        deleted: Some(Deletion::Explicit),
        ..prepare.map_or_else(ItemMeta::default, |prepare| prepare.item.meta())
    };
    Item::new(&meta, key, &[])
}

impl Received {
    /// Returns the seqno of the change.
    #[must_use]
    pub fn seqno(&self) -> Seqno {
        match self {
            Self::Document(item) | Self::Prepare(item) => item.seqno(),
            Self::Commit { seqno, .. } | Self::Abort { seqno, .. } => *seqno,
            Self::System { seqno, .. } => *seqno,
            Self::Advance(seqno) => *seqno,
        }
    }

    /// Returns the CAS, or 0 if the change has none.
    #[must_use]
    pub fn cas(&self) -> Cas {
        match self {
            Self::Document(item) | Self::Prepare(item) => item.cas(),
            _ => Cas(0),
        }
    }
}
