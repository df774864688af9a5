//! Groups of statistics about the scopes and collections of each vBucket, of those of which the user may read statistics.
//!
//! `collections-details` and `scopes-details` take the number of a vBucket and then tell of that one alone; without it they
//! begin with what the manifest has. Names as in Couchbase's documentation of `cbstats`: those of a vBucket begin with
//! `vb_N:`, ids are hexadecimal.

use std::collections::BTreeSet;

use kedge_bucket::{CollectionFigures, VbCollections};
use kedge_types::{CollectionId, Manifest, ScopeId, VbId};

use super::stat::{Each, of_vbuckets};
use crate::session::{Failure, Rights, Session};

/// What the user may see: all that is open, or what the manifest has of it.
enum Seen {
    All,
    Some(BTreeSet<ScopeId>, BTreeSet<CollectionId>),
}

impl Seen {
    fn of(session: &Session, manifest: &Manifest) -> Self {
        // In a vBucket there may be what the manifest does not name any more, or not yet.
        if session.rights.allow(Rights::STATS) {
            return Self::All;
        }
        let may = |scope: &str, collection: &str| session.may_in(scope, collection, Rights::STATS);
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

/// A group by its name.
///
/// # Errors
/// `NoBucket`, `AccessDenied`; `Invalid` for an argument that is no number, `NotMyVbucket` for a vBucket that is not here.
pub(super) fn group(
    session: &Session,
    name: &str,
    argument: Option<&str>,
    each: Each<'_>,
) -> Result<(), Failure> {
    let bucket = session.bucket_somewhere(Rights::STATS)?;
    let manifest = bucket.manifest();
    let seen = Seen::of(session, &manifest);
    let show = if name == "scopes-details" {
        scopes
    } else {
        collections
    };
    if argument.is_none() {
        named(name, &manifest, &seen, each);
        each("manifest_uid", &format!("0x{:x}", manifest.uid.0));
    }
    let look = |vb| bucket.vbucket_collections(vb);
    of_vbuckets(bucket, argument, look, |vb, found| {
        show(vb, &found, &manifest, &seen, each);
    })
}

/// The names that the manifest has.
fn named(group: &str, manifest: &Manifest, seen: &Seen, each: Each<'_>) {
    for scope in &manifest.scopes {
        if !seen.has_scope(scope.id) {
            continue;
        }
        let prefix = format!("0x{:x}", scope.id.0);
        let mut count = 0_usize;
        for collection in scope.collections.iter().filter(|it| seen.has(it.id)) {
            count += 1;
            let prefix = format!("{prefix}:0x{:x}", collection.id.get());
            each(&format!("{prefix}:name"), &collection.name);
            if let Some(secs) = collection
                .max_ttl
                .filter(|_| group == "collections-details")
            {
                each(&format!("{prefix}:maxTTL"), &secs.to_string());
            }
        }
        if group == "scopes-details" {
            each(&format!("{prefix}:name"), &scope.name);
            each(&format!("{prefix}:collections"), &count.to_string());
        }
    }
}

fn collections(vb: VbId, found: &VbCollections, manifest: &Manifest, seen: &Seen, each: Each<'_>) {
    let shown: Vec<&CollectionFigures> = shown(found, seen).collect();
    each(
        &format!("vb_{vb}:manifest:uid"),
        &format!("0x{:x}", found.uid.0),
    );
    each(&format!("vb_{vb}:collections"), &shown.len().to_string());
    for it in shown {
        let prefix = format!("vb_{vb}:0x{:x}", it.collection.get());
        if let Some((_, named)) = manifest.collection(it.collection) {
            each(&format!("{prefix}:name"), &named.name);
        }
        each(&format!("{prefix}:scope"), &format!("0x{:x}", it.scope.0));
        let persisted = it.high_seqno.min(found.persisted_seqno);
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
}

fn scopes(vb: VbId, found: &VbCollections, manifest: &Manifest, seen: &Seen, each: Each<'_>) {
    each(
        &format!("vb_{vb}:manifest:uid"),
        &format!("0x{:x}", found.uid.0),
    );
    let ids = found.scopes.iter().filter(|id| seen.has_scope(**id));
    for id in ids {
        let prefix = format!("vb_{vb}:0x{:x}", id.0);
        if let Some(scope) = manifest.scope(*id) {
            each(&format!("{prefix}:name"), &scope.name);
        }
        let mut count = 0_usize;
        for it in shown(found, seen).filter(|it| it.scope == *id) {
            count += 1;
            let name = format!("{prefix}:0x{:x}:items", it.collection.get());
            each(&name, &it.items.to_string());
        }
        each(&format!("{prefix}:collections"), &count.to_string());
    }
}

fn shown<'f>(
    found: &'f VbCollections,
    seen: &'f Seen,
) -> impl Iterator<Item = &'f CollectionFigures> {
    found
        .collections
        .iter()
        .filter(|it| seen.has(it.collection))
}
