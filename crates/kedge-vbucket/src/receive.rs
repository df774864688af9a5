//! What another node sends to a vBucket that follows it.
//!
//! What must hold:
//! * Seqnos, CAS and revisions are the sender's. Seqnos grow, and lie within the snapshot that was announced.
//! * A document on a key ends the key's prepare: the sender lets nobody write there before it has ended. From a disk the
//!   end of a prepare comes as the document that it was committed to, or a newer one; a newer prepare, or the end of a
//!   newer one, says as well that it has ended.
//! * What a disk snapshot says of visible and completed seqnos holds from its end on.

use crate::checkpoint::Change;
use crate::durability::Prepare;
use crate::failover::FailoverTable;
use crate::item::{Deletion, Item, ItemMeta};
use crate::snapshot::Snapshot;
use crate::system_event::SystemEvent;
use crate::vbucket::{VBucket, VbState};
use kedge_types::{Cas, Expiry, Now, Seqno, Status, VbUuid};
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
        /// What happened.
        event: SystemEvent,
        /// Its place.
        seqno: Seqno,
    },
    /// There is nothing up to this seqno that was to be sent.
    Advance(Seqno),
}

/// What came cannot be. Nothing was changed; the stream has to be made anew.
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
    /// What the sender is told.
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

/// Where a stream goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resume {
    /// The last seqno there is.
    pub start: Seqno,
    /// The last consistent point; `start`, if that is one.
    pub snap_start: Seqno,
    /// The next consistent point; `start`, if that is one.
    pub snap_end: Seqno,
    /// A branch that `start` lies on. A branch that began at `start` has nothing yet, and may be known here only.
    pub uuid: VbUuid,
}

/// The stream that a vBucket follows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stream {
    is_open: bool,
    /// The snapshot that was announced last.
    first: Seqno,
    last: Seqno,
}

impl VBucket {
    /// A stream of another node's changes was accepted, whose history is `failover`; it is this vBucket's from now on.
    ///
    /// # Errors
    /// [`ReceiveError::NotReceiving`] unless it is a replica or pending.
    pub fn begin_stream(&mut self, failover: FailoverTable) -> Result<(), ReceiveError> {
        let follows = matches!(self.state, VbState::Replica | VbState::Pending);
        if !follows || self.is_deleted || self.rewinding {
            return Err(ReceiveError::NotReceiving);
        }
        self.is_unwritten = false;
        if self.failover != failover {
            self.failover = failover;
            let failover = Box::new(self.failover.clone());
            self.checkpoints.push(Change::State(failover, self.state));
        }
        self.stream = Stream {
            is_open: true,
            first: self.high_seqno,
            last: self.high_seqno,
        };
        self.following.acknowledge_again();
        Ok(())
    }

    /// The stream ended. A snapshot that broke off stays so until another stream brings the rest.
    pub fn end_stream(&mut self) {
        self.stream = Stream::default();
    }

    /// Whether it follows a stream.
    #[must_use]
    pub fn is_streaming(&self) -> bool {
        self.stream.is_open
    }

    /// Where a stream goes on.
    #[must_use]
    pub fn resume_point(&self) -> Resume {
        let start = self.high_seqno;
        let (snap_start, snap_end) = match &self.open {
            Some(open) => (open.start, open.end),
            None => (start, start),
        };
        let entries = self.failover.entries();
        let has_begun = |(_, began): &&(VbUuid, Seqno)| *began < start;
        let branch = entries.iter().find(has_begun).or(entries.last());
        Resume {
            start,
            snap_start,
            snap_end,
            uuid: branch.map_or(VbUuid(0), |(uuid, _)| *uuid),
        }
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
        if start > end || end < self.high_seqno || self.high_seqno < self.stream.last {
            return Err(ReceiveError::BadSnapshot { start, end });
        }
        (self.stream.first, self.stream.last) = (start, end);
        if end == self.high_seqno {
            return Ok(());
        }
        let behind = Snapshot {
            start: self.high_seqno,
            ..snapshot
        };
        // Of a snapshot that broke off before its first change nothing is missing, and its end may never come.
        let torn = self.open.filter(|torn| torn.start < self.high_seqno);
        let open = behind.after(torn);
        self.follow_snapshot(open);
        self.checkpoints.push(Change::Snapshot(Box::new(open)));
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
        let high = self.high_seqno;
        if seqno <= high || !(self.stream.first..=self.stream.last).contains(&seqno) {
            return Err(ReceiveError::Order { high, seqno });
        }
        match received {
            Received::Document(item) => {
                self.clock.learn(item.cas(), now.unix_ns);
                self.high_seqno = seqno;
                let replaced = self.follow_document(item.clone());
                self.checkpoints.push_over(Change::Document(item), replaced);
            }
            Received::Prepare(item) => {
                self.follow_prepare(item.clone())
                    .ok_or(ReceiveError::BadPrepare { prepared: seqno })?;
                self.clock.learn(item.cas(), now.unix_ns);
                self.high_seqno = seqno;
                self.checkpoints.push(Change::Prepare(item));
            }
            Received::Commit { key, prepared, .. } => {
                let prepare = self
                    .follow_commit(&key, prepared)
                    .ok_or(ReceiveError::NoPrepare { prepared })?;
                self.high_seqno = seqno;
                let item = prepare.item.with_seqno(seqno);
                let replaced = self.follow_document(item.clone());
                let change = Change::Commit { item, prepared };
                self.checkpoints.push_over(change, replaced);
            }
            Received::Abort { key, prepared, .. } => {
                let prepare = self
                    .follow_abort(&key, prepared)
                    .ok_or(ReceiveError::NoPrepare { prepared })?;
                self.high_seqno = seqno;
                let item = aborted(now, &key, seqno, prepare.as_ref());
                self.checkpoints.push(Change::Abort { item, prepared });
            }
            Received::System { event, .. } => {
                self.high_seqno = seqno;
                // Nobody is told its CAS.
                let item = event.item(self.clock.last(), seqno);
                let replaced = self.receive_event(&event, seqno);
                self.checkpoints.push_over(Change::System(item), replaced);
            }
            Received::Advance(_) => {
                self.high_seqno = seqno;
                self.checkpoints.push(Change::Advance(seqno));
            }
        }
        self.reach(seqno);
        Ok(())
    }

    pub(crate) fn is_in_disk_snapshot(&self) -> bool {
        self.open.is_some_and(|open| open.is_disk())
    }

    /// Whether prepares may have ended without a word, or end without having been here.
    fn may_lack_ends(&self) -> bool {
        self.is_in_disk_snapshot() || self.replay.is_behind_torn_file(self.high_seqno)
    }

    pub(crate) fn follow_snapshot(&mut self, snapshot: Snapshot) {
        self.purge_seqno = self.purge_seqno.max(snapshot.purge.unwrap_or_default());
        self.open = Some(snapshot);
    }

    /// Puts a document in, and ends the prepare of its key. Gives the seqno of what it replaced.
    pub(crate) fn follow_document(&mut self, item: Item) -> Seqno {
        let hash = self.table.hash(item.key());
        self.prepares.take_of(hash, item.key());
        if self.is_in_disk_snapshot() {
            self.following.saw_visible(item.seqno());
        } else {
            self.visible_seqno = item.seqno();
        }
        self.put(hash, item)
    }

    /// `None`: it has no level, or its key has a prepare already that cannot have ended.
    pub(crate) fn follow_prepare(&mut self, item: Item) -> Option<()> {
        let level = item.level()?;
        let hash = self.table.hash(item.key());
        if self.prepares.holds(hash, item.key()) {
            if !self.may_lack_ends() {
                return None;
            }
            self.prepares.take_of(hash, item.key());
        }
        self.collections.on_seqno(item.key(), item.seqno());
        self.prepares.add(Prepare::found(hash, item, level));
        Some(())
    }

    /// Takes the prepare that was committed.
    pub(crate) fn follow_commit(&mut self, key: &[u8], prepared: Seqno) -> Option<Prepare> {
        let hash = self.table.hash(key);
        let prepare = self.prepares.take(hash, key, prepared)?;
        if !self.is_in_disk_snapshot() {
            self.prepares.note_completed(prepared);
        }
        Some(prepare)
    }

    /// Takes the prepare that was given up: `Some(None)` when there is none, as a disk has forgotten it.
    pub(crate) fn follow_abort(&mut self, key: &[u8], prepared: Seqno) -> Option<Option<Prepare>> {
        let hash = self.table.hash(key);
        let found = self.prepares.take(hash, key, prepared);
        // A disk may have forgotten one together with its collection.
        if found.is_none() && !self.may_lack_ends() && !self.is_of_dropped(key) {
            return None;
        }
        if !self.is_in_disk_snapshot() {
            self.prepares.note_completed(prepared);
        }
        // If it is another, it was an older one.
        Some(found.or_else(|| self.prepares.take_of(hash, key)))
    }

    /// The last seqno is `seqno` now: if a snapshot ends there, this is a consistent point.
    pub(crate) fn reach(&mut self, seqno: Seqno) {
        if let Some(open) = self.open.take_if(|open| open.end <= seqno) {
            if open.is_disk() {
                let seen = self.following.take_visible();
                let told = open.max_visible.unwrap_or_default().min(seqno);
                self.visible_seqno = self.visible_seqno.max(seen).max(told);
                let completed = open.high_completed.unwrap_or_default().min(seqno);
                self.prepares.end_upto(completed);
            }
            self.following.complete(&open, seqno, &self.prepares);
            self.following.update(self.persisted_seqno, &self.prepares);
        }
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
