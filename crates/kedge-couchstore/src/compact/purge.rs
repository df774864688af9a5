//! What a compaction of a vBucket's file leaves out, in the terms of the key-value engine (couchstore file format,
//! section 8.2). In this order:
//!
//! 1. entries of collections that were dropped, up to the seqno of the drop;
//! 2. tombstones, aborts among them, that were deleted before a given time: their seqno becomes the purge seqno. Never
//!    the entry with the highest seqno of the file, or of its collection;
//! 3. prepares that were completed.
//!
//! Documents that have expired are reported and kept: they go when the delete arrives that the report brings about.
//!
//! Invariants:
//! * What cannot be understood is kept.
//! * Counts and sizes in the target's local documents are the source's, less what was left out and did not come again
//!   while catching up.

mod adjust;

use std::collections::HashMap;
use std::ops::ControlFlow;

use kedge_types::{CollectionId, Expiry, Seqno};

use self::adjust::Adjustments;
use super::{Hooks, LocalPatch, Progress, Verdict};
use crate::kv::{
    CollectionStats, DROPPED_COLLECTIONS_NAME, DiskKey, DroppedCollection, DroppedCollections,
    EntryMeta, KvError, Meaning, VBSTATE_NAME, VbStateDocument,
};
use crate::{Entry, Error, OldVersion, Snapshot};

/// How long tombstones are kept by default, in seconds: three days.
pub const PURGE_AGE_SECS: u32 = 3 * 24 * 60 * 60;

/// Which tombstones go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The time that decides about expiry, in Unix seconds.
    pub now: u32,
    /// Tombstones of deletes before this Unix second go.
    pub purge_before: u32,
    /// Only those up to this seqno; `None` sets no limit.
    pub purge_up_to: Option<Seqno>,
    /// All tombstones go, however old they are.
    pub drops_all_tombstones: bool,
    /// Tombstones that state no time of their delete, as some old releases wrote them, stay.
    pub keeps_undated_tombstones: bool,
}

impl Policy {
    /// What is usual at a Unix second: tombstones are kept for [`PURGE_AGE_SECS`].
    #[must_use]
    pub fn at(now: u32) -> Self {
        Policy {
            now,
            purge_before: now.saturating_sub(PURGE_AGE_SECS),
            purge_up_to: None,
            drops_all_tombstones: false,
            keeps_undated_tombstones: false,
        }
    }
}

/// Hears what happens, and may stop it. All methods do nothing unless they are written.
pub trait Events {
    /// A document has expired. `body` is there, decompressed where the store compressed it, if there are extended
    /// attributes, which a delete may have to keep.
    fn expired(&mut self, entry: &Entry, body: Option<&[u8]>) {
        let _ = (entry, body);
    }

    /// An entry of a dropped collection was left out.
    fn dropped(&mut self, entry: &Entry) {
        let _ = entry;
    }

    /// An entry was copied, in the main pass or while catching up.
    fn copied(&mut self, entry: &Entry) {
        let _ = entry;
    }

    /// As [`Hooks::pace`].
    fn pace(&mut self, bytes: u64, progress: &Progress) -> ControlFlow<()> {
        let _ = (bytes, progress);
        ControlFlow::Continue(())
    }
}

impl Events for () {}

/// What was left out, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Report {
    /// Entries of dropped collections.
    pub of_dropped_collections: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Prepares.
    pub prepares: u64,
    /// Documents that have expired, and were kept.
    pub expired: u64,
    /// Entries that could not be understood, and were kept.
    pub not_understood: u64,
}

/// The rules as hooks of one compaction, from its main pass to its last round.
#[derive(Debug)]
pub struct Purge<E> {
    policy: Policy,
    events: E,
    newest: Seqno,
    /// Of each collection that was dropped, the seqno of the drop.
    dropped: HashMap<CollectionId, Seqno>,
    /// The drops themselves, as they stand in the source.
    drops: Vec<DroppedCollection>,
    /// The highest seqno of each collection.
    collections: HashMap<CollectionId, Seqno>,
    /// All prepares up to here are completed.
    completed: Seqno,
    adjustments: Adjustments,
    report: Report,
}

impl<E: Events> Purge<E> {
    /// For the compaction of this snapshot.
    ///
    /// # Errors
    /// [`Error::Local`] if a local document that decides about entries cannot be understood; damage; those of the disk.
    pub fn new(source: &Snapshot, policy: Policy, events: E) -> Result<Self, Error> {
        let newest = source.header().update_seqno();
        let mut purge = Purge {
            policy,
            events,
            newest,
            dropped: HashMap::new(),
            drops: Vec::new(),
            collections: HashMap::new(),
            completed: Seqno(0),
            adjustments: Adjustments::new(source),
            report: Report::default(),
        };
        for local in source.locals()? {
            let (name, value) = local?;
            let failed = |reason| local_error(source, &name, reason);
            if name == VBSTATE_NAME {
                let state = VbStateDocument::decode(&value, newest).map_err(failed)?;
                purge.completed = state.completed_seqno;
            } else if name == DROPPED_COLLECTIONS_NAME {
                purge.drops = DroppedCollections::decode(&value).map_err(failed)?.entries;
            } else if let Some(collection) = CollectionStats::collection_of(&name) {
                let stats = CollectionStats::decode(&value).map_err(failed)?;
                purge.collections.insert(collection, stats.high_seqno);
            }
        }
        for drop in &purge.drops {
            let end = purge.dropped.entry(drop.collection).or_default();
            *end = drop.end.max(*end);
        }
        Ok(purge)
    }

    /// What was left out so far.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Who hears of it.
    pub fn events(&mut self) -> &mut E {
        &mut self.events
    }

    fn decide(&mut self, entry: &Entry) -> Result<Verdict, KvError> {
        let key = DiskKey::decode(entry.key())?;
        let collection = match key {
            DiskKey::Document { collection, .. } => Some(collection),
            DiskKey::SystemEvent { .. } => None,
        };
        if let Some(collection) = collection
            && let Some(end) = self.dropped.get(&collection)
            && entry.seqno() <= *end
        {
            self.report.of_dropped_collections += 1;
            self.adjustments.left_out(entry);
            self.events.dropped(entry);
            return Ok(Verdict::Drop);
        }
        let meta = EntryMeta::decode(entry.is_deleted(), entry.content_meta(), entry.rev_meta())?;
        let meaning = meta.meaning(&key)?;
        if entry.is_deleted() {
            let is_last = collection.is_some_and(|collection| {
                self.collections.get(&collection) == Some(&entry.seqno())
            });
            if is_last || !self.goes(entry.seqno(), meta.rev_meta.exptime) {
                return Ok(Verdict::Keep);
            }
            self.report.tombstones += 1;
            self.adjustments.left_out(entry);
            return Ok(Verdict::Purge);
        }
        match meaning {
            Meaning::Prepare { .. } if entry.seqno() <= self.completed => {
                self.report.prepares += 1;
                self.adjustments.left_out(entry);
                Ok(Verdict::Drop)
            }
            Meaning::Live
                if Expiry(meta.rev_meta.exptime).has_passed(u64::from(self.policy.now)) =>
            {
                self.report.expired += 1;
                if meta
                    .rev_meta
                    .datatype
                    .contains(kedge_types::Datatype::XATTR)
                {
                    return Ok(Verdict::NeedBody);
                }
                self.events.expired(entry, None);
                Ok(Verdict::Keep)
            }
            _ => Ok(Verdict::Keep),
        }
    }

    /// Whether the tombstone of a delete at this time goes.
    fn goes(&self, seqno: Seqno, deleted_at: u32) -> bool {
        let policy = &self.policy;
        let is_old = deleted_at < policy.purge_before
            && policy.purge_up_to.is_none_or(|last| seqno <= last)
            && !(deleted_at == 0 && policy.keeps_undated_tombstones);
        seqno < self.newest && (is_old || policy.drops_all_tombstones)
    }

    /// Takes the collections that are gone now off the list of those that wait for it.
    fn forget_drops(&self, locals: &mut LocalPatch) -> Result<(), Error> {
        let Some(value) = locals.get(DROPPED_COLLECTIONS_NAME)? else {
            return Ok(());
        };
        let mut list = DroppedCollections::decode(&value)
            .map_err(|reason| local_error(locals.source(), DROPPED_COLLECTIONS_NAME, reason))?;
        let before = list.entries.len();
        list.entries.retain(|drop| !self.drops.contains(drop));
        if list.entries.is_empty() {
            locals.remove(DROPPED_COLLECTIONS_NAME);
        } else if list.entries.len() < before {
            locals.set(DROPPED_COLLECTIONS_NAME, list.encode());
        }
        Ok(())
    }
}

impl<E: Events> Hooks for Purge<E> {
    fn filter(&mut self, entry: &Entry, body: Option<&[u8]>) -> Verdict {
        if body.is_some() {
            // Only documents that have expired are asked for.
            self.events.expired(entry, body);
            return Verdict::Keep;
        }
        self.decide(entry).unwrap_or_else(|_| {
            self.report.not_understood += 1;
            Verdict::Keep
        })
    }

    fn copied(&mut self, entry: &Entry, disk_bytes: u32, replaced: Option<OldVersion<'_>>) {
        self.adjustments.copied(entry, disk_bytes, replaced);
        self.events.copied(entry);
    }

    fn locals(&mut self, locals: &mut LocalPatch) -> Result<(), Error> {
        self.forget_drops(locals)?;
        self.adjustments.apply(locals)
    }

    fn pace(&mut self, bytes: u64, progress: &Progress) -> ControlFlow<()> {
        self.events.pace(bytes, progress)
    }
}

fn local_error(file: &Snapshot, name: &[u8], reason: KvError) -> Error {
    Error::Local {
        file: file.path().to_owned(),
        name: name.escape_ascii().to_string(),
        reason,
    }
}
