//! The groups of STAT about the scopes and collections of each vBucket, as far as the user may read their statistics.
//!
//! `collections-details` and `scopes-details` take the number of a vBucket and then show that one alone; without it
//! they begin with the names of the manifest. Names as in Couchbase's documentation of `cbstats`: those of a vBucket
//! begin with `vb_N:`, ids are hexadecimal.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use kedge_bucket::{Bucket, CollectionFigures};
use kedge_types::{CollectionId, Manifest, Scope, ScopeId, Seqno, Status, VbId};

use super::stat_lines::{StatStep, vbucket_number};
use crate::session::{Rights, Session};
use crate::stat_generator::{AddStat, StatGenerator};

/// The scopes and collections that the user may see: all, or some of the manifest.
enum VisibleCollections {
    All,
    Some(BTreeSet<ScopeId>, BTreeSet<CollectionId>),
}

impl VisibleCollections {
    fn of(session: &Session, manifest: &Manifest) -> Self {
        // A vBucket may have collections that the manifest does not have any more, or not yet.
        if session.privileges.allow(Rights::STATS) {
            return Self::All;
        }
        let may = |scope: &str, collection: &str| {
            session
                .privileges
                .allow_in(scope, collection, Rights::STATS)
        };
        let seen = manifest.collections();
        let seen = seen.filter(|(scope, collection)| may(&scope.name, &collection.name));
        let (scopes, collections) = seen.map(|(scope, it)| (scope.id, it.id)).unzip();
        Self::Some(scopes, collections)
    }

    fn has_scope(&self, id: ScopeId) -> bool {
        match self {
            Self::All => true,
            Self::Some(scopes, _) => scopes.contains(&id),
        }
    }

    fn has(&self, id: CollectionId) -> bool {
        match self {
            Self::All => true,
            Self::Some(_, collections) => collections.contains(&id),
        }
    }
}

/// Largest number of collections or scopes that a step shows.
const STEP: usize = 32;

/// The generator of a group.
struct CollectionDetails {
    bucket: Arc<Bucket>,
    manifest: Arc<Manifest>,
    seen: VisibleCollections,
    /// True if scopes are shown rather than collections.
    of_scopes: bool,
    /// Names of the collections that the manifest has.
    names: BTreeMap<CollectionId, String>,
    /// The next scope of the manifest to be named, while there is one.
    naming: Option<usize>,
    /// vBuckets that are still to be shown.
    left: Range<u16>,
    /// The vBucket that was shown in part.
    current: Option<VbucketProgress>,
}

/// The progress of the lines of a vBucket.
struct VbucketProgress {
    vb: VbId,
    persisted: Seqno,
    /// Scopes that are still to be shown, the next one last.
    scopes: Vec<ScopeId>,
    /// The number of collections of the next scope that were shown; `None` before its name was.
    told: Option<usize>,
    /// Collections that are still to be shown, the next one last.
    collections: Vec<CollectionFigures>,
}

/// Produces a group by its name.
///
/// # Errors
/// `NoBucket`, `AccessDenied`; `Invalid` for an argument that is no number, `NotMyVbucket` for a vBucket that this node
/// does not have.
pub(super) fn group(session: &Session, name: &str, argument: Option<&str>) -> StatStep {
    let bucket = session.bucket_somewhere(Rights::STATS)?.clone();
    let manifest = bucket.collections().manifest();
    let left = match argument {
        None => 0..bucket.vbuckets(),
        Some(argument) => {
            let vb = vbucket_number(argument)?;
            bucket.vbucket_figures(vb).ok_or(Status::NotMyVbucket)?;
            vb.0..vb.0 + 1
        }
    };
    let named = manifest.collections();
    let mut details = CollectionDetails {
        seen: VisibleCollections::of(session, &manifest),
        names: named.map(|(_, it)| (it.id, it.name.clone())).collect(),
        of_scopes: name == "scopes-details",
        naming: argument.is_none().then_some(0),
        bucket,
        manifest,
        left,
        current: None,
    };
    Ok(Some(StatGenerator::new(move |each| details.step(each))))
}

impl CollectionDetails {
    fn step(&mut self, each: AddStat<'_>) -> bool {
        if let Some(at) = self.naming {
            self.naming = match self.manifest.scopes.get(at) {
                Some(scope) => {
                    self.name(scope, each);
                    Some(at + 1)
                }
                None => {
                    each("manifest_uid", &format!("0x{:x}", self.manifest.uid.0));
                    None
                }
            };
            return true;
        }
        match self.current.take() {
            Some(mut current) => {
                let is_over = match self.of_scopes {
                    true => self.scopes(&mut current, each),
                    false => self.collections(&mut current, each),
                };
                self.current = (!is_over).then_some(current);
                true
            }
            None => self.next_vbucket(each),
        }
    }

    /// Shows the names of a scope and its collections.
    fn name(&self, scope: &Scope, each: AddStat<'_>) {
        if !self.seen.has_scope(scope.id) {
            return;
        }
        let prefix = format!("0x{:x}", scope.id.0);
        let mut count = 0_usize;
        for collection in scope.collections.iter().filter(|it| self.seen.has(it.id)) {
            count += 1;
            let prefix = format!("{prefix}:0x{:x}", collection.id.get());
            each(&format!("{prefix}:name"), &collection.name);
            if let Some(secs) = collection.max_ttl.filter(|_| !self.of_scopes) {
                each(&format!("{prefix}:maxTTL"), &secs.to_string());
            }
        }
        if self.of_scopes {
            each(&format!("{prefix}:name"), &scope.name);
            each(&format!("{prefix}:collections"), &count.to_string());
        }
    }

    /// Begins the next vBucket, with the lines about the whole of it.
    fn next_vbucket(&mut self, each: AddStat<'_>) -> bool {
        let Some(vb) = self.left.next().map(VbId) else {
            return false;
        };
        let Some(mut found) = self.bucket.collections().of_vbucket(vb) else {
            return true;
        };
        found.collections.retain(|it| self.seen.has(it.collection));
        found.scopes.retain(|id| self.seen.has_scope(*id));
        let uid = format!("0x{:x}", found.uid.0);
        each(&format!("vb_{vb}:manifest:uid"), &uid);
        let count = found.collections.len();
        if self.of_scopes {
            // Sorted, as they are shown scope by scope.
            found
                .collections
                .sort_by_key(|it| (it.scope, it.collection));
            found.scopes.sort_unstable();
        } else {
            each(&format!("vb_{vb}:collections"), &count.to_string());
        }
        found.collections.reverse();
        found.scopes.reverse();
        self.current = Some(VbucketProgress {
            vb,
            persisted: found.persisted_seqno,
            scopes: found.scopes,
            told: None,
            collections: found.collections,
        });
        true
    }

    /// Shows some collections of a vBucket. Returns true at the end.
    fn collections(&self, current: &mut VbucketProgress, each: AddStat<'_>) -> bool {
        let at = current.collections.len().saturating_sub(STEP);
        for it in current.collections.drain(at..).rev() {
            let prefix = format!("vb_{}:0x{:x}", current.vb, it.collection.get());
            if let Some(name) = self.names.get(&it.collection) {
                each(&format!("{prefix}:name"), name);
            }
            each(&format!("{prefix}:scope"), &format!("0x{:x}", it.scope.0));
            let persisted = it.high_seqno.min(current.persisted);
            for (name, value) in [
                ("items", it.items),
                ("disk_size", it.disk_bytes),
                ("start_seqno", it.start.get()),
                ("high_seqno", it.high_seqno.get()),
                ("persisted_high_seqno", persisted.get()),
                ("ops_get", it.ops.reads),
                ("ops_store", it.ops.writes),
                ("ops_delete", it.ops.deletes),
            ] {
                each(&format!("{prefix}:{name}"), &value.to_string());
            }
        }
        current.collections.is_empty()
    }

    /// Shows the next scope of a vBucket, or some of its collections. Returns true at the end.
    fn scopes(&self, current: &mut VbucketProgress, each: AddStat<'_>) -> bool {
        let Some(&id) = current.scopes.last() else {
            return true;
        };
        let prefix = format!("vb_{}:0x{:x}", current.vb, id.0);
        if current.told.is_none()
            && let Some(scope) = self.manifest.scope(id)
        {
            each(&format!("{prefix}:name"), &scope.name);
        }
        let told = current.told.get_or_insert(0);
        for _ in 0..STEP {
            let Some(it) = current.collections.pop_if(|it| it.scope <= id) else {
                each(&format!("{prefix}:collections"), &told.to_string());
                current.scopes.pop();
                current.told = None;
                return false;
            };
            if it.scope == id {
                *told += 1;
                let name = format!("{prefix}:0x{:x}:items", it.collection.get());
                each(&name, &it.items.to_string());
            }
        }
        false
    }
}
