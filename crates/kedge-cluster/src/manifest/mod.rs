//! The collection manifest of a bucket: edits, name rules, and documents.
//!
//! [`Manifest`] is the set of scopes and collections. [`ManifestKeeper`] also knows the assigned ids, and is what is
//! saved and sent between nodes. An edit creates a new keeper and leaves the old one unchanged.
//!
//! Invariants:
//! * An edit that changes something creates a larger uid; one that fails or changes nothing creates none.
//! * An id is assigned to one scope, or one collection, for ever: it is not reused after a drop.
//! * In a cluster, a change is made of the manifest that the coordination store has, in a transaction. So no two changes
//!   create the same uid, or assign the same id.

mod json;
mod names;
mod wanted;

use std::sync::Arc;

use crate::ClusterError;
use kedge_types::limits::{COLLECTIONS_MAX, SCOPES_MAX};
use kedge_types::{Collection, CollectionId, Manifest, ManifestUid, Scope, ScopeId};

pub use json::{manifest_json, manifest_rest_json, parse_manifest};
pub use names::{ManifestNameProblem, check_manifest_name};
pub use wanted::{WantedCollection, WantedManifest, WantedScope, parse_wanted_scopes};

/// The name of the default scope, and of the default collection in it.
pub const DEFAULT_NAME: &str = "_default";

/// The first id that is not reserved for the system; 0 is the default scope's and the default collection's.
pub const FIRST_ID: u32 = 8;

/// The largest number of ids that are skipped for changes that are not known one by one.
const CHANGES_MAX: u32 = 1 << 20;

/// A change of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ManifestEdit {
    /// Creates a scope without collections.
    CreateScope {
        /// The name.
        scope: String,
    },
    /// Drops a scope and all collections in it.
    DropScope {
        /// The name.
        scope: String,
    },
    /// Creates a collection.
    CreateCollection {
        /// The scope's name.
        scope: String,
        /// The name.
        collection: String,
        /// The default expiry as in [`Collection::max_ttl`], in seconds.
        max_ttl: Option<u32>,
    },
    /// Changes a collection.
    ModifyCollection {
        /// The scope's name.
        scope: String,
        /// The name.
        collection: String,
        /// The default expiry as in [`Collection::max_ttl`], in seconds; `None` keeps the old one.
        max_ttl: Option<Option<u32>>,
    },
    /// Drops a collection.
    DropCollection {
        /// The scope's name.
        scope: String,
        /// The name.
        collection: String,
    },
    /// Creates, changes and drops scopes and collections until the manifest equals this one.
    Replace(WantedManifest),
}

/// The reason why a manifest was not changed. SDKs recognise the reasons by their texts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The name is invalid for a scope or collection.
    #[error("{0}")]
    Name(#[from] ManifestNameProblem),
    /// The scope already exists.
    #[error("Scope with name \"{0}\" already exists")]
    ScopeExists(String),
    /// The scope does not exist.
    #[error("Scope with name \"{0}\" is not found")]
    NoScope(String),
    /// The collection already exists.
    #[error("Collection with name \"{collection}\" in scope \"{scope}\" already exists")]
    CollectionExists {
        /// The scope's name.
        scope: String,
        /// The collection's name.
        collection: String,
    },
    /// The collection or its scope does not exist.
    #[error("Collection with name \"{collection}\" in scope \"{scope}\" is not found")]
    NoCollection {
        /// The scope's name.
        scope: String,
        /// The collection's name.
        collection: String,
    },
    /// The default scope cannot be dropped.
    #[error("Deleting _default scope is not allowed")]
    DefaultScope,
    /// The manifest has another uid than the change requires.
    #[error("The manifest has another uid: {:x}", .0.0)]
    OtherUid(ManifestUid),
    /// The maximum number is reached, or no ids are left.
    #[error("Maximum number of scopes has been reached: a bucket has {SCOPES_MAX}")]
    TooManyScopes,
    /// The maximum number is reached, or no ids are left.
    #[error("Maximum number of collections has been reached: a bucket has {COLLECTIONS_MAX}")]
    TooManyCollections,
}

/// A manifest, and the state that is needed to change it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestKeeper {
    manifest: Arc<Manifest>,
    /// No scope has, or ever had, this id or a larger one.
    next_scope: u32,
    /// The same for collections.
    next_collection: u32,
}

impl Default for ManifestKeeper {
    fn default() -> Self {
        Self {
            manifest: Arc::default(),
            next_scope: FIRST_ID,
            next_collection: FIRST_ID,
        }
    }
}

impl ManifestKeeper {
    /// Creates a keeper that continues a manifest from elsewhere. The ids that were assigned there are known only from
    /// the remaining ones and from the uid, which grew with each change: all possible ids are skipped.
    ///
    /// # Errors
    /// `Manifest` when it contradicts itself.
    pub fn going_on(manifest: Manifest) -> Result<Self, ClusterError> {
        json::check(&manifest).map_err(ClusterError::Manifest)?;
        let changes = u32::try_from(manifest.uid.0).unwrap_or(u32::MAX);
        let behind = |last: Option<u32>| {
            let last = last.unwrap_or_default().max(FIRST_ID - 1);
            last.saturating_add(changes.min(CHANGES_MAX))
                .saturating_add(1)
        };
        let scopes = manifest.scopes.iter().map(|scope| scope.id.0).max();
        let collections = manifest.collections();
        let collections = collections.map(|(_, each)| each.id.get()).max();
        Ok(Self {
            next_scope: behind(scopes),
            next_collection: behind(collections),
            manifest: Arc::new(manifest),
        })
    }

    /// Returns the manifest.
    #[must_use]
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// Returns its uid.
    #[must_use]
    pub fn uid(&self) -> ManifestUid {
        self.manifest.uid
    }

    /// Returns whether the manifest was never changed.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the manifest after a change.
    ///
    /// # Errors
    /// [`ManifestError`].
    pub fn edit(&self, edit: &ManifestEdit) -> Result<Self, ManifestError> {
        let mut next = self.clone();
        let mut manifest = Manifest::clone(&self.manifest);
        match edit {
            ManifestEdit::CreateScope { scope } => {
                next.create_scope(&mut manifest, scope)?;
            }
            ManifestEdit::DropScope { scope } => drop_scope(&mut manifest, scope)?,
            ManifestEdit::CreateCollection {
                scope,
                collection,
                max_ttl,
            } => {
                next.create_collection(&mut manifest, (scope, collection), *max_ttl)?;
            }
            ManifestEdit::ModifyCollection {
                scope,
                collection,
                max_ttl,
            } => {
                let at = find_collection(&mut manifest, scope, collection)?;
                let is = &mut at.0.collections[at.1].max_ttl;
                *is = max_ttl.unwrap_or(*is);
            }
            ManifestEdit::DropCollection { scope, collection } => {
                let at = find_collection(&mut manifest, scope, collection)?;
                at.0.collections.remove(at.1);
            }
            ManifestEdit::Replace(wanted) => next.replace(&mut manifest, wanted)?,
        }
        if manifest != *self.manifest {
            manifest.uid = ManifestUid(self.uid().0 + 1);
            next.manifest = Arc::new(manifest);
        }
        Ok(next)
    }

    fn create_scope(&mut self, manifest: &mut Manifest, name: &str) -> Result<(), ManifestError> {
        if manifest.scopes.iter().any(|scope| scope.name == name) {
            return Err(ManifestError::ScopeExists(name.to_owned()));
        }
        check_manifest_name(name)?;
        if manifest.scopes.len() >= SCOPES_MAX {
            return Err(ManifestError::TooManyScopes);
        }
        let id = next_id(self.next_scope).ok_or(ManifestError::TooManyScopes)?;
        self.next_scope = id + 1;
        manifest.scopes.push(Scope {
            id: ScopeId(id),
            name: name.to_owned(),
            collections: Vec::new(),
        });
        Ok(())
    }

    fn create_collection(
        &mut self,
        manifest: &mut Manifest,
        (scope, name): (&str, &str),
        max_ttl: Option<u32>,
    ) -> Result<(), ManifestError> {
        let count = manifest.collections().count();
        let into = find_scope(manifest, scope)?;
        if into.collections.iter().any(|it| it.name == name) {
            return Err(ManifestError::CollectionExists {
                scope: scope.to_owned(),
                collection: name.to_owned(),
            });
        }
        check_manifest_name(name)?;
        if count >= COLLECTIONS_MAX {
            return Err(ManifestError::TooManyCollections);
        }
        let id = next_id(self.next_collection).ok_or(ManifestError::TooManyCollections)?;
        self.next_collection = id + 1;
        into.collections.push(Collection {
            id: CollectionId(id),
            name: name.to_owned(),
            max_ttl,
            history: false,
        });
        Ok(())
    }
}

/// Returns the next id, if there is one after it.
fn next_id(next: u32) -> Option<u32> {
    (next < u32::MAX).then_some(next)
}

fn find_scope<'m>(manifest: &'m mut Manifest, name: &str) -> Result<&'m mut Scope, ManifestError> {
    let found = manifest.scopes.iter_mut().find(|scope| scope.name == name);
    found.ok_or_else(|| ManifestError::NoScope(name.to_owned()))
}

fn drop_scope(manifest: &mut Manifest, name: &str) -> Result<(), ManifestError> {
    if name == DEFAULT_NAME {
        return Err(ManifestError::DefaultScope);
    }
    find_scope(manifest, name)?;
    manifest.scopes.retain(|scope| scope.name != name);
    Ok(())
}

/// Finds the scope of a collection, and the index of the collection in it.
fn find_collection<'m>(
    manifest: &'m mut Manifest,
    scope: &str,
    name: &str,
) -> Result<(&'m mut Scope, usize), ManifestError> {
    let in_scope = find_scope(manifest, scope)?;
    let at = in_scope.collections.iter().position(|it| it.name == name);
    let at = at.ok_or_else(|| ManifestError::NoCollection {
        scope: scope.to_owned(),
        collection: name.to_owned(),
    })?;
    Ok((in_scope, at))
}
