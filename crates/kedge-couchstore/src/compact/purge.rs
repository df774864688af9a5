//! The purge rules of the key-value engine, which decide what the compaction of a vBucket's file drops (couchstore file
//! format, section 8.2). In this order:
//!
//! 1. entries of collections that were dropped, up to the seqno of the drop;
//! 2. tombstones, including aborts, that were deleted before a given time: their seqno becomes the purge seqno. Never
//!    the entry with the highest seqno of the file, or of its collection;
//! 3. prepares that were completed.
//!
//! Expired documents are reported and kept. The delete that follows from the report removes them.
//!
//! Invariants:
//! * Entries that cannot be decoded are kept.
//! * Counts and sizes in the target's local documents are those of the source, minus the dropped entries that did not
//!   reappear during catch-up.

mod adjust;

use std::collections::HashMap;
use std::ops::ControlFlow;

use kedge_types::{CollectionId, Expiry, Seqno};

use self::adjust::StatsAdjustments;
use super::{CompactionHooks, CopyProgress, FilterDecision, LocalPatch};
use crate::kv::{
    CollectionStats, DROPPED_COLLECTIONS_NAME, DiskKey, DroppedCollection, DroppedCollections,
    EntryMeta, KvError, Meaning, VBSTATE_NAME, VbStateDocument,
};
use crate::{Entry, Error, OldVersion, Snapshot};

/// Default age in seconds from which tombstones are purged: three days.
pub const PURGE_AGE_SECS: u32 = 3 * 24 * 60 * 60;

/// The selection of tombstones to purge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PurgePolicy {
    /// The Unix second at which expiry times are evaluated.
    pub now: u32,
    /// Tombstones of deletions before this Unix second are purged.
    pub purge_before: u32,
    /// Only tombstones up to this seqno are purged; `None` sets no limit.
    pub purge_up_to: Option<Seqno>,
    /// All tombstones are purged, whatever their age.
    pub drops_all_tombstones: bool,
    /// Tombstones without a time of deletion, as some old releases wrote them, are kept.
    pub keeps_undated_tombstones: bool,
}

impl PurgePolicy {
    /// Creates the default policy at a Unix second: tombstones are kept for [`PURGE_AGE_SECS`].
    #[must_use]
    pub fn at(now: u32) -> Self {
        PurgePolicy {
            now,
            purge_before: now.saturating_sub(PURGE_AGE_SECS),
            purge_up_to: None,
            drops_all_tombstones: false,
            keeps_undated_tombstones: false,
        }
    }
}

/// The notifications of a purge, which may stop it. The default methods do nothing.
pub trait PurgeEvents {
    /// Called for an expired document. `body` is present, decompressed if the store compressed it, if there are
    /// extended attributes, which a deletion may have to keep.
    fn expired(&mut self, entry: &Entry, body: Option<&[u8]>) {
        let _ = (entry, body);
    }

    /// Called for a dropped entry of a dropped collection.
    fn dropped(&mut self, entry: &Entry) {
        let _ = entry;
    }

    /// Called for a copied entry, in the main pass or in a catch-up round.
    fn copied(&mut self, entry: &Entry) {
        let _ = entry;
    }

    /// The pacing hook, see [`CompactionHooks::pace`].
    fn pace(&mut self, bytes: u64, progress: &CopyProgress) -> ControlFlow<()> {
        let _ = (bytes, progress);
        ControlFlow::Continue(())
    }
}

impl PurgeEvents for () {}

/// The numbers of dropped entries, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PurgeReport {
    /// Entries of dropped collections.
    pub of_dropped_collections: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Prepares.
    pub prepares: u64,
    /// Expired documents, which were kept.
    pub expired: u64,
    /// Entries that could not be decoded, which were kept.
    pub not_understood: u64,
}

/// The purge rules as the hooks of one compaction, from its main pass to its last round.
#[derive(Debug)]
pub struct Purge<E> {
    policy: PurgePolicy,
    events: E,
    newest: Seqno,
    /// For each dropped collection, the seqno of the drop.
    dropped: HashMap<CollectionId, Seqno>,
    /// The dropped collections as listed in the source.
    drops: Vec<DroppedCollection>,
    /// The highest seqno of each collection.
    collections: HashMap<CollectionId, Seqno>,
    /// All prepares up to this seqno are complete.
    completed: Seqno,
    adjustments: StatsAdjustments,
    report: PurgeReport,
}

impl<E: PurgeEvents> Purge<E> {
    /// Creates the hooks of a compaction of this snapshot.
    ///
    /// # Errors
    /// [`Error::Local`] if a local document that the rules need cannot be decoded; damage of the file; disk errors.
    pub fn new(source: &Snapshot, policy: PurgePolicy, events: E) -> Result<Self, Error> {
        let newest = source.header().update_seqno();
        let mut purge = Purge {
            policy,
            events,
            newest,
            dropped: HashMap::new(),
            drops: Vec::new(),
            collections: HashMap::new(),
            completed: Seqno(0),
            adjustments: StatsAdjustments::new(source),
            report: PurgeReport::default(),
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

    /// Returns the numbers of dropped entries so far.
    #[must_use]
    pub fn report(&self) -> &PurgeReport {
        &self.report
    }

    /// Returns the receiver of notifications.
    pub fn events(&mut self) -> &mut E {
        &mut self.events
    }

    fn decide(&mut self, entry: &Entry) -> Result<FilterDecision, KvError> {
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
            return Ok(FilterDecision::Drop);
        }
        let meta = EntryMeta::decode(entry.is_deleted(), entry.content_meta(), entry.rev_meta())?;
        let meaning = meta.meaning(&key)?;
        if entry.is_deleted() {
            let is_last = collection.is_some_and(|collection| {
                self.collections.get(&collection) == Some(&entry.seqno())
            });
            if is_last || !self.goes(entry.seqno(), meta.rev_meta.exptime) {
                return Ok(FilterDecision::Keep);
            }
            self.report.tombstones += 1;
            self.adjustments.left_out(entry);
            return Ok(FilterDecision::Purge);
        }
        match meaning {
            Meaning::Prepare { .. } if entry.seqno() <= self.completed => {
                self.report.prepares += 1;
                self.adjustments.left_out(entry);
                Ok(FilterDecision::Drop)
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
                    return Ok(FilterDecision::NeedBody);
                }
                self.events.expired(entry, None);
                Ok(FilterDecision::Keep)
            }
            _ => Ok(FilterDecision::Keep),
        }
    }

    /// Returns `true` if the tombstone of a deletion at this time is purged.
    fn goes(&self, seqno: Seqno, deleted_at: u32) -> bool {
        let policy = &self.policy;
        let is_old = deleted_at < policy.purge_before
            && policy.purge_up_to.is_none_or(|last| seqno <= last)
            && !(deleted_at == 0 && policy.keeps_undated_tombstones);
        seqno < self.newest && (is_old || policy.drops_all_tombstones)
    }

    /// Removes the collections that are purged now from the list of dropped collections.
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

impl<E: PurgeEvents> CompactionHooks for Purge<E> {
    fn filter(&mut self, entry: &Entry, body: Option<&[u8]>) -> FilterDecision {
        if body.is_some() {
            // Only the bodies of expired documents are requested.
            self.events.expired(entry, body);
            return FilterDecision::Keep;
        }
        self.decide(entry).unwrap_or_else(|_| {
            self.report.not_understood += 1;
            FilterDecision::Keep
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

    fn pace(&mut self, bytes: u64, progress: &CopyProgress) -> ControlFlow<()> {
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
