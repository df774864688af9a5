//! The differences between the target and the source in the counts that local documents keep.
//!
//! The source counts every change relative to the version that it had under the key itself. So if the old version of a
//! document was dropped and catch-up copies a new one, the target equals the source as far as this document is
//! concerned: the subtraction for the old version is undone.

use std::collections::HashMap;

use kedge_types::CollectionId;

use super::local_error;
use crate::compact::LocalPatch;
use crate::kv::{
    CollectionStats, DiskKey, EntryMeta, KvError, Meaning, VBSTATE_NAME, VbStateDocument,
};
use crate::{ContentMeta, Entry, Error, OldVersion, Snapshot};

/// The differences between the counts of the target and the source.
#[derive(Debug)]
pub(super) struct StatsAdjustments {
    /// The result of the main pass, which shows the dropped entries.
    copied: Snapshot,
    /// Size of each collection's entries, in bytes.
    collections: HashMap<CollectionId, i64>,
    prepares: i64,
    prepare_bytes: i64,
    /// Difference of the sizes of a body in target and source, in bytes: not 0 if one of the files is encrypted.
    more_per_body: i64,
    has_left_out: bool,
    /// A failed lookup, to be reported by the next call that can.
    failed: Option<Error>,
}

/// The properties of an entry that determine how it counts.
#[derive(Clone, Copy)]
struct CountedEntry<'a> {
    key: &'a [u8],
    is_deleted: bool,
    content_meta: ContentMeta,
    rev_meta: &'a [u8],
}

impl<'a> CountedEntry<'a> {
    fn of(entry: &'a Entry) -> Self {
        CountedEntry {
            key: entry.key(),
            is_deleted: entry.is_deleted(),
            content_meta: entry.content_meta(),
            rev_meta: entry.rev_meta(),
        }
    }

    /// Returns the collection that it counts for, and whether it is a prepare.
    fn decode(&self) -> Result<(Option<CollectionId>, bool), KvError> {
        let key = DiskKey::decode(self.key)?;
        let DiskKey::Document {
            collection,
            prepared,
            ..
        } = key
        else {
            return Ok((None, false));
        };
        if !prepared || self.is_deleted {
            return Ok((Some(collection), false));
        }
        let meta = EntryMeta::decode(self.is_deleted, self.content_meta, self.rev_meta)?;
        let is_prepare = matches!(meta.meaning(&key)?, Meaning::Prepare { .. });
        Ok((Some(collection), is_prepare))
    }
}

/// Returns the size of an entry in the statistics, in bytes.
fn bytes_of(entry: &Entry) -> i64 {
    i64::from(entry.disk_bytes()) + (entry.key().len() + entry.rev_meta().len()) as i64
}

impl StatsAdjustments {
    pub(super) fn new(source: &Snapshot) -> Self {
        StatsAdjustments {
            copied: source.clone(),
            collections: HashMap::new(),
            prepares: 0,
            prepare_bytes: 0,
            more_per_body: 0,
            has_left_out: false,
            failed: None,
        }
    }

    /// Records that the main pass dropped an entry.
    pub(super) fn left_out(&mut self, entry: &Entry) {
        self.has_left_out = true;
        self.add(CountedEntry::of(entry), -1, -bytes_of(entry));
    }

    /// Records a copied entry.
    pub(super) fn copied(
        &mut self,
        entry: &Entry,
        disk_bytes: u32,
        replaced: Option<OldVersion<'_>>,
    ) {
        if entry.disk_bytes() > 0 {
            self.more_per_body = i64::from(disk_bytes) - i64::from(entry.disk_bytes());
            if self.more_per_body != 0 {
                self.add(CountedEntry::of(entry), 0, self.more_per_body);
            }
        }
        if let Some(old) = replaced {
            if old.disk_bytes() > 0 && self.more_per_body != 0 {
                let kind = CountedEntry {
                    key: entry.key(),
                    is_deleted: old.is_deleted(),
                    content_meta: old.content_meta(),
                    rev_meta: old.rev_meta(),
                };
                self.add(kind, 0, -self.more_per_body);
            }
            return;
        }
        let is_later = entry.seqno() > self.copied.header().update_seqno();
        if is_later && self.has_left_out {
            match self.copied.get(entry.key()) {
                Ok(Some(old)) => self.add(CountedEntry::of(&old), 1, bytes_of(&old)),
                Ok(None) => {}
                Err(error) => self.failed = Some(error),
            }
        }
    }

    /// Adds entries like this one, and bytes. Entries that cannot be decoded are not counted.
    fn add(&mut self, kind: CountedEntry<'_>, entries: i64, bytes: i64) {
        let Ok((collection, is_prepare)) = kind.decode() else {
            return;
        };
        if let Some(collection) = collection {
            *self.collections.entry(collection).or_default() += bytes;
        }
        if is_prepare {
            self.prepares += entries;
            self.prepare_bytes += bytes;
        }
    }

    /// Applies the differences to the target's local documents.
    pub(super) fn apply(&mut self, locals: &mut LocalPatch) -> Result<(), Error> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        for (collection, bytes) in &self.collections {
            let name = CollectionStats::name(*collection);
            // The statistics of a collection are dropped with the collection.
            let Some(value) = locals.get(name.as_bytes())? else {
                continue;
            };
            let mut stats = CollectionStats::decode(&value)
                .map_err(|reason| local_error(locals.source(), name.as_bytes(), reason))?;
            if let Some(disk_bytes) = &mut stats.disk_bytes
                && *bytes != 0
            {
                *disk_bytes = disk_bytes.saturating_add_signed(*bytes);
                locals.set(name.as_bytes(), stats.encode());
            }
        }
        if (self.prepares, self.prepare_bytes) == (0, 0) {
            return Ok(());
        }
        let Some(value) = locals.get(VBSTATE_NAME)? else {
            return Ok(());
        };
        let newest = locals.source().header().update_seqno();
        let mut state = VbStateDocument::decode(&value, newest)
            .map_err(|reason| local_error(locals.source(), VBSTATE_NAME, reason))?;
        state.on_disk_prepares = state.on_disk_prepares.saturating_add_signed(self.prepares);
        state.on_disk_prepare_bytes = state
            .on_disk_prepare_bytes
            .saturating_add_signed(self.prepare_bytes);
        locals.set(VBSTATE_NAME, state.encode());
        Ok(())
    }
}
