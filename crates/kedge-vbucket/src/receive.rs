//! What another node sends to a vBucket that follows it.
//!
//! Invariants:
//! * Seqnos, CAS and revisions are the sender's. Seqnos grow, and lie within the snapshot that was announced.
//! * A document on a key ends the key's prepare: the sender lets nobody write there before it has ended. From a disk the
//!   end of a prepare comes as the document that it was committed to, or a newer one; a newer prepare, or the end of a
//!   newer one, says as well that it has ended.
//! * What a disk snapshot says of visible and completed seqnos holds from its end on.

use crate::checkpoint::Change;
use crate::durability::Prepare;
use crate::failover::FailoverTable;
use crate::item::{Deletion, Item, ItemMeta};
use crate::manifest::receive_event;
use crate::snapshot::{IncomingStream, Snapshot};
use crate::system_event::SystemEvent;
use crate::vbucket::VBucket;
use kedge_types::{Cas, Expiry, Now, Seqno, Status};
use std::fmt;

/// One change that came.
#[derive(Clone, Debug)]
pub enum Received {
    /// A document or tombstone. In a disk snapshot it may stand for a commit.
    Document(Item),
    /// A SyncWrite that waits for its level.
    Prepare(Item),
    /// The prepare of this key was committed.
    Commit {
        /// The stored key.
        key: Box<[u8]>,
        /// The seqno of the prepare.
        prepared: Seqno,
        /// The seqno of the commit.
        seqno: Seqno,
    },
    /// The prepare of this key was given up.
    Abort {
        /// The stored key.
        key: Box<[u8]>,
        /// The seqno of the prepare.
        prepared: Seqno,
        /// The seqno of the abort.
        seqno: Seqno,
    },
    /// Collections or scopes came or went.
    System {
        /// The kind of change.
        event: SystemEvent,
        /// Its place.
        seqno: Seqno,
    },
    /// There is nothing up to this seqno that was to be sent.
    Advance(Seqno),
}

/// A received change that cannot be. Nothing was changed; the stream has to be made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The vBucket follows nobody, or no stream was begun.
    NotReceiving,
    /// A snapshot ends before its start or before the last change, or begins while another has not ended.
    BadSnapshot {
        /// Its first seqno.
        start: Seqno,
        /// Its last seqno.
        end: Seqno,
    },
    /// A seqno is not above that of the last change, or not within the snapshot.
    Order {
        /// The last seqno.
        high: Seqno,
        /// The seqno that came.
        seqno: Seqno,
    },
    /// A commit or abort names a prepare that is not there.
    NoPrepare {
        /// The seqno of the prepare.
        prepared: Seqno,
    },
    /// A prepare says no level, or its key has one that has not ended.
    BadPrepare {
        /// The seqno of the prepare.
        prepared: Seqno,
    },
}

impl ReceiveError {
    /// The status for the sender.
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
            Self::NotReceiving => f.write_str("the vBucket has no stream that it follows"),
            Self::BadSnapshot { start, end } => {
                write!(f, "the snapshot from {start} to {end} cannot follow")
            }
            Self::Order { high, seqno } => {
                write!(
                    f,
                    "seqno {seqno} cannot follow seqno {high} in this snapshot"
                )
            }
            Self::NoPrepare { prepared } => {
                write!(f, "the prepare at seqno {prepared} is not there")
            }
            Self::BadPrepare { prepared } => {
                write!(
                    f,
                    "the prepare at seqno {prepared} has no level, or its key has one already"
                )
            }
        }
    }
}

impl std::error::Error for ReceiveError {}

impl VBucket {
    /// A stream of another node's changes was accepted, whose history is `failover`; it is this vBucket's from now on.
    ///
    /// # Errors
    /// [`ReceiveError::NotReceiving`] unless it is a replica or pending.
    pub fn begin_stream(&mut self, failover: FailoverTable) -> Result<(), ReceiveError> {
        let follows = self.store.state.is_follower();
        if !follows || self.is_deleted || self.store.unapplied.rewinding {
            return Err(ReceiveError::NotReceiving);
        }
        self.store.history.is_unwritten = false;
        if self.store.history.failover != failover {
            self.store.history.failover = failover;
            self.store.push_state();
        }
        self.stream = IncomingStream {
            is_open: true,
            first: self.store.history.high_seqno,
            last: self.store.history.high_seqno,
        };
        self.durability.passive.acknowledge_again();
        Ok(())
    }

    /// The stream ended. A snapshot that broke off stays so until another stream brings the rest.
    pub fn end_stream(&mut self) {
        self.stream = IncomingStream::default();
    }

    /// Returns whether it follows a stream.
    #[must_use]
    pub fn is_streaming(&self) -> bool {
        self.stream.is_open
    }

    /// Takes the seqno to be acknowledged to the active that is followed, if that has moved.
    pub fn take_ack(&mut self) -> Option<Seqno> {
        if self.stream.is_open {
            self.durability.passive.take_ack()
        } else {
            None
        }
    }

    /// Returns whether what it acknowledges next waits for the disk.
    #[must_use]
    pub fn waits_for_disk(&self) -> bool {
        self.stream.is_open && self.durability.passive.waits_for_disk()
    }

    /// A snapshot begins.
    ///
    /// # Errors
    /// [`ReceiveError::NotReceiving`], [`ReceiveError::BadSnapshot`].
    pub fn begin_snapshot(&mut self, snapshot: Snapshot) -> Result<(), ReceiveError> {
        if !self.stream.is_open {
            return Err(ReceiveError::NotReceiving);
        }
        let Snapshot { start, end, .. } = snapshot;
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
        let behind = Snapshot {
            start: self.store.history.high_seqno,
            ..snapshot
        };
        // Of a snapshot that broke off before its first change nothing is missing, and its end may never come.
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

    /// A change came.
    ///
    /// # Errors
    /// [`ReceiveError`], and nothing was changed.
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
                // Nobody is told its CAS.
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

/// Returns whether prepares may have ended without a word, or end without having been here.
fn may_lack_ends(vb: &VBucket) -> bool {
    let history = &vb.store.history;
    history.is_in_disk_snapshot() || vb.replay.is_behind_torn_file(history.high_seqno)
}

/// Puts a document in, and ends the prepare of its key. Returns the seqno of what it replaced.
pub(crate) fn follow_document(vb: &mut VBucket, item: Item) -> Seqno {
    let hash = vb.store.documents.hash(item.key());
    vb.durability.prepares.take_of(hash, item.key());
    vb.store.history.see(item.seqno());
    vb.store.put(hash, item)
}

/// `None`: it has no level, or its key has a prepare already that cannot have ended.
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
    let prepare = Prepare::found(hash, item, level);
    vb.durability.prepares.add(prepare);
    Some(())
}

/// Takes the prepare that was committed.
pub(crate) fn follow_commit(vb: &mut VBucket, key: &[u8], prepared: Seqno) -> Option<Prepare> {
    let hash = vb.store.documents.hash(key);
    let prepare = vb.durability.prepares.take(hash, key, prepared)?;
    if !vb.store.history.is_in_disk_snapshot() {
        vb.durability.prepares.note_completed(prepared);
    }
    Some(prepare)
}

/// Takes the prepare that was given up: `Some(None)` when there is none, as a disk has forgotten it.
pub(crate) fn follow_abort(
    vb: &mut VBucket,
    key: &[u8],
    prepared: Seqno,
) -> Option<Option<Prepare>> {
    let hash = vb.store.documents.hash(key);
    let found = vb.durability.prepares.take(hash, key, prepared);
    // A disk may have forgotten one together with its collection.
    if found.is_none() && !may_lack_ends(vb) && !vb.store.collections.is_of_dropped(key) {
        return None;
    }
    if !vb.store.history.is_in_disk_snapshot() {
        vb.durability.prepares.note_completed(prepared);
    }
    // If it is another, it was an older one.
    Some(found.or_else(|| vb.durability.prepares.take_of(hash, key)))
}

/// The last seqno is `seqno` now: if a snapshot ends there, this is a consistent point.
pub(crate) fn reach(vb: &mut VBucket, seqno: Seqno) {
    let history = &mut vb.store.history;
    if let Some(ended) = history.reach(seqno) {
        vb.durability
            .complete_snapshot(&ended, seqno, history.persisted_seqno);
    }
}

/// The tombstone of an abort: of a prepare that is not known, only the key is.
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
    /// The seqno of the change.
    #[must_use]
    pub fn seqno(&self) -> Seqno {
        match self {
            Self::Document(item) | Self::Prepare(item) => item.seqno(),
            Self::Commit { seqno, .. } | Self::Abort { seqno, .. } => *seqno,
            Self::System { seqno, .. } => *seqno,
            Self::Advance(seqno) => *seqno,
        }
    }

    /// Its version; 0 of what has none.
    #[must_use]
    pub fn cas(&self) -> Cas {
        match self {
            Self::Document(item) | Self::Prepare(item) => item.cas(),
            _ => Cas(0),
        }
    }
}
