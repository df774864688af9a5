//! The copy of a validated file.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use kedge_couchstore::compact::{
    Compaction, CompactionHooks, CompactionSettings, CopyProgress, FilterDecision, LocalPatch,
    target_path,
};
use kedge_couchstore::kv::{
    CollectionStats, DROPPED_COLLECTIONS_NAME, DiskKey, DroppedCollections, EntryMeta,
    FailoverEntry, KvError, Meaning, VBSTATE_NAME, VbStateDocument, VbStateKind,
};
use kedge_couchstore::{Entry, Error as FileError, OldVersion, Options, Snapshot};
use kedge_disk::Disk;
use kedge_types::limits::FAILOVER_ENTRIES_MAX;
use kedge_types::{CollectionId, Seqno, VbId, VbUuid};

use super::ImportProblem;
use super::check::{ImportCandidate, branches, refused};
use super::place::{VbucketOfKey, check_place};
use crate::keys::NewFile;
use crate::maintenance::StopFlag;
use crate::names::file_name;
use crate::vb_metadata::VbMetadata;
use crate::{Storage, StorageError};

/// Copies a file into the bucket's directory and installs it as the vBucket's. Returns the number of its live
/// documents.
pub(super) fn take_over(
    storage: &Storage,
    disk: &dyn Disk,
    candidate: &ImportCandidate,
    place_of: VbucketOfKey<'_>,
    new_uuid: &mut dyn FnMut(VbId) -> VbUuid,
) -> Result<u64, StorageError> {
    let vb = candidate.vb;
    let _alone = storage.slot(vb).maintenance().exclusive(&storage.pauses);
    let mut guard = storage.writer(vb);
    let mut own_table = Vec::new();
    if let Some(own) = guard.newest()? {
        let high_seqno = own.header().update_seqno();
        // No other process may have written to it since the validation.
        if high_seqno > Seqno(0) {
            let problem = ImportProblem::NotEmpty { high_seqno };
            return Err(refused(candidate.path.clone(), problem));
        }
        own_table = VbMetadata::read(&own)?
            .document
            .failover_table
            .unwrap_or_default();
    }
    let source = Snapshot::open(disk, &candidate.path, &Options::default())?;
    let state = new_state(&source, new_uuid(vb), &own_table)?;
    let place = KeyPlacement {
        vb,
        vbuckets: storage.vbuckets(),
        place_of,
    };
    let mut hooks = ImportCopy::new(&source, state, place, &storage.stopping)?;
    let target = target_path(&storage.dir.join(file_name(vb, guard.revision())));
    storage.clear(&target)?;
    let NewFile { create, lease } = storage.options.new_file();
    let settings = CompactionSettings {
        create,
        ..CompactionSettings::default()
    };
    let copied = Compaction::run(&storage.disk, &source, &target, &settings, &mut hooks);
    if let Some(problem) = hooks.foreign.take() {
        return Err(refused(candidate.path.clone(), problem));
    }
    if let Some((seqno, reason)) = hooks.not_understood.take() {
        return Err(StorageError::Entry {
            file: candidate.path.clone(),
            seqno,
            offset: 0,
            reason,
        });
    }
    guard.install(copied?)?;
    drop(lease);
    guard.remove_left();
    Ok(hooks.tallies.values().map(|tally| tally.items).sum())
}

/// Returns the new state of the vBucket: active, on a new branch.
fn new_state(
    source: &Snapshot,
    uuid: VbUuid,
    own_table: &[FailoverEntry],
) -> Result<VbStateDocument, StorageError> {
    let high_seqno = source.header().update_seqno();
    let mut state = VbMetadata::read(source)?.document;
    state.check_snapshot(high_seqno);
    let (start, old) = branches(&state, high_seqno);
    let mut table = vec![FailoverEntry { uuid, start }];
    table.extend(old);
    // The branches of the empty vBucket stay in the failover table, below those of the file: a peer on one of them is
    // on a history from before the import.
    let own = own_table.iter().take(FAILOVER_ENTRIES_MAX - 1);
    table.truncate(FAILOVER_ENTRIES_MAX - own.len());
    table.extend(own.filter(|entry| entry.start == Seqno(0)));
    state.failover_table = Some(table);
    state.state = VbStateKind::Active;
    (state.snap_start, state.snap_end) = (high_seqno, high_seqno);
    // It names nodes of another cluster.
    state.replication_topology = None;
    state.catch_up = None;
    Ok(state)
}

/// The vBucket that the keys have to belong to.
#[derive(Clone, Copy)]
struct KeyPlacement<'a> {
    vb: VbId,
    vbuckets: u16,
    place_of: VbucketOfKey<'a>,
}

/// The callbacks of the copy: they keep and count everything, and set the state of the vBucket.
struct ImportCopy<'a> {
    state: VbStateDocument,
    /// Statistics of collections, except dropped ones whose documents are still there.
    tallies: BTreeMap<CollectionId, CollectionStats>,
    dropped: BTreeMap<CollectionId, Seqno>,
    not_understood: Option<(Seqno, KvError)>,
    /// A key of another vBucket.
    foreign: Option<ImportProblem>,
    place: KeyPlacement<'a>,
    stopping: &'a StopFlag,
}

impl<'a> ImportCopy<'a> {
    fn new(
        source: &Snapshot,
        state: VbStateDocument,
        place: KeyPlacement<'a>,
        stopping: &'a StopFlag,
    ) -> Result<Self, StorageError> {
        let metadata = VbMetadata::read(source)?;
        let high_seqnos = metadata.collections.into_iter().map(|(collection, stats)| {
            // The entry with the highest seqno may have been purged.
            let tally = CollectionStats {
                high_seqno: stats.high_seqno,
                ..CollectionStats::default()
            };
            (collection, tally)
        });
        let mut hooks = ImportCopy {
            tallies: high_seqnos.collect(),
            state: VbStateDocument {
                on_disk_prepares: 0,
                on_disk_prepare_bytes: 0,
                ..state
            },
            dropped: BTreeMap::new(),
            not_understood: None,
            foreign: None,
            place,
            stopping,
        };
        let Some(dropped) = source.local(DROPPED_COLLECTIONS_NAME)? else {
            return Ok(hooks);
        };
        let dropped = DroppedCollections::decode(&dropped).map_err(|reason| FileError::Local {
            file: source.path().to_owned(),
            name: DROPPED_COLLECTIONS_NAME.escape_ascii().to_string(),
            reason,
        })?;
        for entry in dropped.entries {
            let end = hooks.dropped.entry(entry.collection).or_default();
            *end = entry.end.max(*end);
        }
        Ok(hooks)
    }

    fn count(&mut self, entry: &Entry, disk_bytes: u32) -> Result<(), KvError> {
        let key = DiskKey::decode(entry.key())?;
        let meta = EntryMeta::decode(entry.is_deleted(), entry.content_meta(), entry.rev_meta())?;
        let meaning = meta.meaning(&key)?;
        let bytes = u64::from(disk_bytes) + (entry.key().len() + entry.rev_meta().len()) as u64;
        if matches!(
            meaning,
            Meaning::Prepare { .. } | Meaning::LegacyCommit { .. }
        ) {
            self.state.on_disk_prepares += 1;
            self.state.on_disk_prepare_bytes += bytes;
        }
        if !self.state.has_max_cas {
            // The CAS values of prepares and tombstones were issued, too.
            self.state.max_cas = self.state.max_cas.max(meta.rev_meta.cas);
        }
        let DiskKey::Document {
            collection,
            logical,
            ..
        } = key
        else {
            return Ok(());
        };
        let KeyPlacement {
            vb,
            vbuckets,
            place_of,
        } = self.place;
        if let Err(problem) = check_place(logical, vb, vbuckets, place_of) {
            self.foreign.get_or_insert(problem);
        }
        if (self.dropped.get(&collection)).is_some_and(|end| entry.seqno() <= *end) {
            return Ok(());
        }
        let tally = self.tallies.entry(collection).or_default();
        tally.items += u64::from(meaning == Meaning::Live);
        tally.high_seqno = tally.high_seqno.max(entry.seqno());
        *tally.disk_bytes.get_or_insert(0) += bytes;
        Ok(())
    }
}

impl CompactionHooks for ImportCopy<'_> {
    fn filter(&mut self, _: &Entry, _: Option<&[u8]>) -> FilterDecision {
        match self.not_understood.is_some() || self.foreign.is_some() {
            true => FilterDecision::Stop,
            false => FilterDecision::Keep,
        }
    }

    fn copied(&mut self, entry: &Entry, disk_bytes: u32, _: Option<OldVersion<'_>>) {
        if let Err(reason) = self.count(entry, disk_bytes) {
            self.not_understood.get_or_insert((entry.seqno(), reason));
        }
    }

    fn locals(&mut self, locals: &mut LocalPatch) -> Result<(), FileError> {
        for (collection, tally) in &mut self.tallies {
            tally.disk_bytes.get_or_insert(0);
            locals.set(
                CollectionStats::name(*collection).as_bytes(),
                tally.encode(),
            );
        }
        locals.set(VBSTATE_NAME, self.state.encode());
        Ok(())
    }

    fn pace(&mut self, _: u64, _: &CopyProgress) -> ControlFlow<()> {
        match self.stopping.is_set() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}
