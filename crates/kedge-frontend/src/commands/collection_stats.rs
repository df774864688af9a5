//! The groups of STAT about scopes and collections, as far as the user may read their statistics, and `manifest`.
//!
//! `collections` and `scopes` take a path (`scope.collection`, `scope`), `collections-byid` and `scopes-byid` an id in
//! hexadecimal; without one they show all. Names begin with the ids in hexadecimal, `0xSCOPE:0xCOLLECTION:`.

use std::collections::{BTreeMap, BTreeSet};

use kedge_bucket::{Bucket, CollectionFigures, CollectionOps, VbState};
use kedge_types::{Collection, CollectionId, Manifest, Scope, ScopeId, Seqno, Status, VbId};

use super::stat_lines::{StatStep, of_vbuckets};
use crate::session::{CommandFailure, Rights, Session};
use crate::stat_generator::{AddStat, StatGenerator};

/// The part of the manifest that a request selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CollectionSelection<'a> {
    All,
    Scope(&'a Scope),
    Collection(&'a Scope, &'a Collection),
}

impl CollectionSelection<'_> {
    fn has(&self, scope: &Scope, collection: &Collection) -> bool {
        match self {
            Self::All => true,
            Self::Scope(wanted) => wanted.id == scope.id,
            Self::Collection(_, wanted) => wanted.id == collection.id,
        }
    }

    fn has_scope(&self, scope: &Scope) -> bool {
        match self {
            Self::All => true,
            Self::Scope(wanted) | Self::Collection(wanted, _) => wanted.id == scope.id,
        }
    }
}

const NO_SCOPE: CommandFailure =
    CommandFailure::new(Status::UnknownScope, "there is no such scope");
const NO_COLLECTION: CommandFailure =
    CommandFailure::new(Status::UnknownCollection, "there is no such collection");

fn scope_named<'m>(manifest: &'m Manifest, name: &str) -> Result<&'m Scope, CommandFailure> {
    let name = if name.is_empty() { "_default" } else { name };
    let mut scopes = manifest.scopes.iter();
    scopes.find(|scope| scope.name == name).ok_or(NO_SCOPE)
}

fn collection_named<'m>(
    manifest: &'m Manifest,
    path: &str,
) -> Result<CollectionSelection<'m>, CommandFailure> {
    const NO_PATH: CommandFailure =
        CommandFailure::new(Status::Invalid, "the argument must be SCOPE.COLLECTION");
    let (scope, name) = path.split_once('.').ok_or(NO_PATH)?;
    let scope = scope_named(manifest, scope)?;
    let name = if name.is_empty() { "_default" } else { name };
    let mut collections = scope.collections.iter();
    let collection = collections.find(|it| it.name == name);
    Ok(CollectionSelection::Collection(
        scope,
        collection.ok_or(NO_COLLECTION)?,
    ))
}

fn id(text: &str) -> Result<u32, CommandFailure> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let bad = |_| CommandFailure::new(Status::Invalid, "the argument must be an id in hexadecimal");
    u32::from_str_radix(digits, 16).map_err(bad)
}

/// The collection that a path names, `SCOPE.COLLECTION`.
///
/// # Errors
/// `Invalid`, `UnknownScope`, `UnknownCollection`.
pub(super) fn collection_path(
    manifest: &Manifest,
    path: &str,
) -> Result<CollectionId, CommandFailure> {
    match collection_named(manifest, path)? {
        CollectionSelection::Collection(_, collection) => Ok(collection.id),
        _ => Err(NO_COLLECTION),
    }
}

/// The collection of an id in hexadecimal.
///
/// # Errors
/// `Invalid`, `UnknownCollection`.
pub(super) fn collection_id_of(
    manifest: &Manifest,
    text: &str,
) -> Result<CollectionId, CommandFailure> {
    let id = CollectionId(id(text)?);
    manifest.collection(id).map(|_| id).ok_or(NO_COLLECTION)
}

fn none() -> CollectionFigures {
    CollectionFigures {
        collection: CollectionId::DEFAULT,
        scope: ScopeId(0),
        items: 0,
        disk_bytes: 0,
        start: Seqno(0),
        high_seqno: Seqno(0),
        ops: CollectionOps::default(),
    }
}

type FiguresByCollection = BTreeMap<CollectionId, CollectionFigures>;

/// Adds the figures of each collection in an active vBucket.
fn add(figures: &mut FiguresByCollection, bucket: &Bucket, vb: VbId) {
    if bucket.vbucket_state(vb) != Ok(VbState::Active) {
        return;
    }
    let found = bucket.collections().of_vbucket(vb);
    for it in found.into_iter().flat_map(|found| found.collections) {
        let sum = figures.entry(it.collection).or_insert_with(none);
        sum.items += it.items;
        sum.disk_bytes += it.disk_bytes;
        sum.ops.reads += it.ops.reads;
        sum.ops.writes += it.ops.writes;
        sum.ops.deletes += it.ops.deletes;
    }
}

fn rows(prefix: &str, figures: &CollectionFigures, each: AddStat<'_>) {
    for (name, value) in [
        ("items", figures.items),
        ("disk_size", figures.disk_bytes),
        ("ops_get", figures.ops.reads),
        ("ops_store", figures.ops.writes),
        ("ops_delete", figures.ops.deletes),
    ] {
        each(&format!("{prefix}:{name}"), &value.to_string());
    }
}

/// Produces a group by its name.
pub(super) fn group(
    session: &Session,
    name: &str,
    argument: Option<&str>,
    each: AddStat<'_>,
) -> StatStep {
    let bucket = session.bucket_somewhere(Rights::STATS)?;
    // Scopes and collections without any privilege are answered like missing ones.
    let manifest = session.privileges.visible(&bucket.collections().manifest());
    let seen = |scope: &Scope, collection: &Collection| {
        session
            .privileges
            .allow_in(&scope.name, &collection.name, Rights::STATS)
    };
    let wanted = match (name, argument) {
        ("collections", Some(path)) => collection_named(&manifest, path)?,
        ("collections-byid", Some(text)) => {
            let found = manifest.collection(CollectionId(id(text)?));
            let (scope, collection) = found.ok_or(NO_COLLECTION)?;
            CollectionSelection::Collection(scope, collection)
        }
        ("scopes", Some(path)) => CollectionSelection::Scope(scope_named(&manifest, path)?),
        ("scopes-byid", Some(text)) => {
            let scope = manifest.scope(ScopeId(id(text)?));
            CollectionSelection::Scope(scope.ok_or(NO_SCOPE)?)
        }
        _ => CollectionSelection::All,
    };
    if let CollectionSelection::Collection(scope, collection) = wanted
        && !seen(scope, collection)
    {
        return Err(session.privileges.rights().denied(Rights::STATS));
    }
    let shown: BTreeSet<CollectionId> = manifest
        .collections()
        .filter(|(scope, collection)| wanted.has(scope, collection) && seen(scope, collection))
        .map(|(_, collection)| collection.id)
        .collect();
    let mut scopes = manifest.scopes.clone();
    scopes.retain(|scope| wanted.has_scope(scope));
    each("manifest_uid", &format!("0x{:x}", manifest.uid.0));
    let of_scopes = name.starts_with("scopes");
    let bucket = bucket.clone();
    let mut vbuckets = (0..bucket.vbuckets()).map(VbId);
    let mut figures = FiguresByCollection::new();
    let mut scopes = scopes.into_iter();
    Ok(Some(StatGenerator::new(move |each| {
        if let Some(vb) = vbuckets.next() {
            add(&mut figures, &bucket, vb);
            return true;
        }
        let Some(scope) = scopes.next() else {
            return false;
        };
        if of_scopes {
            sums(&scope, &shown, &figures, each);
        } else {
            collections(&scope, &shown, &figures, each);
        }
        true
    })))
}

/// `manifest`: the manifest of the bucket, as far as the user may see it, and the manifest uid of each vBucket.
///
/// # Errors
/// `NoBucket`, `AccessDenied`; `Invalid` for an argument that is no number, `NotMyVbucket` for a vBucket that this node
/// does not have.
pub(super) fn manifest(session: &Session, argument: Option<&str>, each: AddStat<'_>) -> StatStep {
    let bucket = session.bucket_somewhere(Rights::STATS)?;
    let manifest = session.privileges.visible(&bucket.collections().manifest());
    if argument.is_none() {
        each("manifest_uid", &format!("0x{:x}", manifest.uid.0));
        each("scopes", &manifest.scopes.len().to_string());
        let collections = manifest.collections().count();
        each("collections", &collections.to_string());
    }
    let look = |bucket: &Bucket, vb| bucket.collections().of_vbucket(vb);
    of_vbuckets(bucket, argument, each, look, |vb, found, each| {
        each(
            &format!("vb_{vb}:manifest:uid"),
            &format!("0x{:x}", found.uid.0),
        );
    })
}

/// Shows the collections of a scope.
fn collections(
    scope: &Scope,
    shown: &BTreeSet<CollectionId>,
    figures: &FiguresByCollection,
    each: AddStat<'_>,
) {
    let collections = scope.collections.iter();
    for collection in collections.filter(|it| shown.contains(&it.id)) {
        let prefix = format!("0x{:x}:0x{:x}", scope.id.0, collection.id.get());
        each(&format!("{prefix}:name"), &collection.name);
        each(&format!("{prefix}:scope_name"), &scope.name);
        if let Some(secs) = collection.max_ttl {
            each(&format!("{prefix}:maxTTL"), &secs.to_string());
        }
        let own = figures.get(&collection.id).copied().unwrap_or_else(none);
        rows(&prefix, &own, each);
    }
}

/// Shows the sums over the collections of a scope.
fn sums(
    scope: &Scope,
    shown: &BTreeSet<CollectionId>,
    figures: &FiguresByCollection,
    each: AddStat<'_>,
) {
    let mut sum = none();
    let mut count = 0_u64;
    let collections = scope.collections.iter();
    for collection in collections.filter(|it| shown.contains(&it.id)) {
        count += 1;
        if let Some(own) = figures.get(&collection.id) {
            sum.items += own.items;
            sum.disk_bytes += own.disk_bytes;
            sum.ops.reads += own.ops.reads;
            sum.ops.writes += own.ops.writes;
            sum.ops.deletes += own.ops.deletes;
        }
    }
    // A scope without a visible collection is not shown.
    if count == 0 && !scope.collections.is_empty() {
        return;
    }
    let prefix = format!("0x{:x}", scope.id.0);
    each(&format!("{prefix}:name"), &scope.name);
    each(&format!("{prefix}:collections"), &count.to_string());
    rows(&prefix, &sum, each);
}
