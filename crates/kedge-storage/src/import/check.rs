//! The validation of a file before its import.

use std::path::PathBuf;
use std::sync::Arc;

use kedge_couchstore::kv::{FailoverEntry, SnapshotRange, VbStateDocument, VbStateKind};
use kedge_couchstore::{Options, Snapshot};
use kedge_disk::Disk;
use kedge_types::{Seqno, VbId};
use kedge_vbucket::VbState;

use super::ImportProblem;
use super::place::{VbucketOfKey, check_place, first_keys};
use crate::manifest::FileManifest;
use crate::vb_metadata::VbMetadata;
use crate::{Storage, StorageError};

/// A file that can be imported.
#[derive(Debug)]
pub(super) struct ImportCandidate {
    pub(super) path: PathBuf,
    pub(super) vb: VbId,
    pub(super) was: VbState,
    /// Number of documents according to the header.
    pub(super) documents: u64,
    pub(super) high_seqno: Seqno,
    pub(super) was_there: bool,
    pub(super) lacks_max_cas: bool,
    /// `None` if its collections were never changed.
    pub(super) manifest: Option<Arc<FileManifest>>,
}

impl ImportCandidate {
    pub(super) fn look_at(
        storage: &Storage,
        disk: &dyn Disk,
        path: PathBuf,
        vb: VbId,
        place_of: VbucketOfKey<'_>,
    ) -> Result<Self, StorageError> {
        let vbuckets = storage.vbuckets();
        if vb.get() >= vbuckets {
            return Err(refused(path, ImportProblem::NoSuchVbucket { vbuckets }));
        }
        let file = Snapshot::open(disk, &path, &Options::default())?;
        let header = file.header();
        let VbMetadata {
            document: mut state,
            manifest,
            ..
        } = VbMetadata::read(&file)?;
        if !state.namespaces_supported {
            return Err(refused(path, ImportProblem::WithoutCollections));
        }
        let high_seqno = header.update_seqno();
        if state.check_snapshot(high_seqno) == SnapshotRange::Unusable {
            let problem = ImportProblem::Snapshot {
                start: state.snap_start,
                end: state.snap_end,
                high_seqno,
            };
            return Err(refused(path, problem));
        }
        // The first keys are checked before anything is copied, the others during the copy.
        for key in first_keys(&file)? {
            check_place(&key, vb, vbuckets, place_of).map_err(|why| refused(path.clone(), why))?;
        }
        let mut was_there = false;
        if let Some(own) = storage.reader(vb)? {
            was_there = is_of(&own, &state, &file)?;
            let high_seqno = own.header().update_seqno();
            // A vBucket without documents has nothing to lose.
            if !was_there && high_seqno > Seqno(0) {
                return Err(refused(path, ImportProblem::NotEmpty { high_seqno }));
            }
        }
        Ok(ImportCandidate {
            path,
            vb,
            was: match state.state {
                VbStateKind::Active => VbState::Active,
                VbStateKind::Replica => VbState::Replica,
                VbStateKind::Pending => VbState::Pending,
                VbStateKind::Dead => VbState::Dead,
            },
            documents: header.live_count().saturating_sub(state.on_disk_prepares),
            high_seqno,
            was_there,
            lacks_max_cas: !state.has_max_cas,
            manifest,
        })
    }
}

/// Returns the branches that a file's vBucket shares with its copy in the bucket, newest first, and the start of the
/// next one.
pub(super) fn branches(state: &VbStateDocument, high_seqno: Seqno) -> (Seqno, Vec<FailoverEntry>) {
    // A replica may be within a snapshot. The shared history ends at the start of the snapshot.
    let start = match high_seqno == state.snap_end {
        true => high_seqno,
        false => state.snap_start,
    };
    let known = state.failover_table.iter().flatten();
    let live = known.filter(|entry| entry.start <= start);
    (start, live.copied().collect())
}

/// Returns `true` if the bucket's file was imported from this very file, and may have changed since.
fn is_of(own: &Snapshot, state: &VbStateDocument, file: &Snapshot) -> Result<bool, StorageError> {
    let (start, table) = branches(state, file.header().update_seqno());
    if let Some(newest) = table.first() {
        let own_table = VbMetadata::read(own)?.document.failover_table;
        // A later state of the same vBucket would have another start here.
        return Ok(own_table
            .unwrap_or_default()
            .windows(2)
            .any(|pair| pair[0].start == start && pair[1] == *newest));
    }
    // Without a history the contents decide.
    let counts = |snapshot: &Snapshot| {
        let header = snapshot.header();
        (
            header.update_seqno(),
            header.live_count(),
            header.deleted_count(),
        )
    };
    Ok(own.header().update_seqno() > Seqno(0) && counts(own) == counts(file))
}

pub(super) fn refused(file: PathBuf, problem: ImportProblem) -> StorageError {
    StorageError::Import { file, problem }
}
