//! Replacement of a whole manifest by a wanted one.
//!
//! Invariant: a scope or collection whose name is in both keeps its id, and so its documents.

use std::collections::BTreeSet;

use kedge_types::limits::COLLECTION_TTL_SECS_MAX;
use kedge_types::{Manifest, ManifestUid};
use serde::Deserialize;

use super::{DEFAULT_NAME, ManifestError, ManifestKeeper, find_collection, find_scope};

/// A wanted manifest, and the uid of the manifest that it replaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedManifest {
    /// The scopes.
    pub scopes: Vec<WantedScope>,
    /// The uid of the manifest that it may replace; `None` for any.
    pub valid_on: Option<ManifestUid>,
}

/// A wanted scope with all its collections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedScope {
    /// The name.
    pub name: String,
    /// Its collections.
    pub collections: Vec<WantedCollection>,
}

/// A wanted collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedCollection {
    /// The name.
    pub name: String,
    /// The default expiry as in [`kedge_types::Collection::max_ttl`], in seconds.
    pub max_ttl: Option<u32>,
}

/// The form in which management sends and shows manifests. Fields that only the server may set may be present, and have
/// no effect.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedJson {
    scopes: Vec<WantedScopeJson>,
    #[serde(rename = "uid", default)]
    _uid: serde::de::IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedScopeJson {
    name: String,
    #[serde(default)]
    collections: Vec<WantedCollectionJson>,
    #[serde(rename = "uid", default)]
    _uid: serde::de::IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedCollectionJson {
    name: String,
    #[serde(rename = "maxTTL", default)]
    max_ttl: i64,
    #[serde(default)]
    history: bool,
    #[serde(rename = "uid", default)]
    _uid: serde::de::IgnoredAny,
}

impl WantedCollectionJson {
    fn read(self) -> Result<WantedCollection, String> {
        let name = self.name;
        if self.history {
            return Err(format!(
                "history of \"{name}\": Not supported for storage mode couchstore"
            ));
        }
        let max_ttl = match u32::try_from(self.max_ttl) {
            Ok(0) => None,
            Ok(secs) if secs <= COLLECTION_TTL_SECS_MAX => Some(secs),
            Err(_) if self.max_ttl == -1 => Some(0),
            _ => {
                return Err(format!(
                    "maxTTL of \"{name}\": The value must be in range from -1 to {COLLECTION_TTL_SECS_MAX}"
                ));
            }
        };
        Ok(WantedCollection { name, max_ttl })
    }
}

/// Reads `{"scopes":[{"name","collections":[{"name","maxTTL"}]}]}`, where `maxTTL` is in seconds as in
/// [`super::manifest_rest_json`], and 0 if absent.
///
/// # Errors
/// The error, for a person.
pub fn parse_wanted_scopes(json: &[u8]) -> Result<Vec<WantedScope>, String> {
    let document: WantedJson = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let scope = |scope: WantedScopeJson| {
        let collections = scope.collections.into_iter();
        Ok(WantedScope {
            name: scope.name,
            collections: collections
                .map(WantedCollectionJson::read)
                .collect::<Result<_, String>>()?,
        })
    };
    document.scopes.into_iter().map(scope).collect()
}

/// Rejects duplicate names, and a manifest without the default scope.
fn check(wanted: &[WantedScope]) -> Result<(), ManifestError> {
    let mut scopes = BTreeSet::new();
    for scope in wanted {
        if !scopes.insert(&scope.name) {
            return Err(ManifestError::ScopeExists(scope.name.clone()));
        }
        let mut collections = BTreeSet::new();
        for collection in &scope.collections {
            if !collections.insert(&collection.name) {
                return Err(ManifestError::CollectionExists {
                    scope: scope.name.clone(),
                    collection: collection.name.clone(),
                });
            }
        }
    }
    let has_default = wanted.iter().any(|scope| scope.name == DEFAULT_NAME);
    has_default.then_some(()).ok_or(ManifestError::DefaultScope)
}

impl ManifestKeeper {
    /// Changes `manifest`, which is still that of this keeper, to the wanted one: first it drops unwanted scopes and
    /// collections, then it creates missing ones.
    pub(super) fn replace(
        &mut self,
        manifest: &mut Manifest,
        wanted: &WantedManifest,
    ) -> Result<(), ManifestError> {
        if wanted.valid_on.is_some_and(|uid| uid != manifest.uid) {
            return Err(ManifestError::OtherUid(manifest.uid));
        }
        check(&wanted.scopes)?;
        manifest.scopes.retain_mut(|scope| {
            let Some(kept) = wanted.scopes.iter().find(|it| it.name == scope.name) else {
                return false;
            };
            let is_kept = |name: &str| kept.collections.iter().any(|it| it.name == name);
            scope.collections.retain(|it| is_kept(&it.name));
            true
        });
        for scope in &wanted.scopes {
            if find_scope(manifest, &scope.name).is_err() {
                self.create_scope(manifest, &scope.name)?;
            }
            for it in &scope.collections {
                match find_collection(manifest, &scope.name, &it.name) {
                    Ok((scope, at)) => scope.collections[at].max_ttl = it.max_ttl,
                    Err(_) => {
                        let path = (scope.name.as_str(), it.name.as_str());
                        self.create_collection(manifest, path, it.max_ttl)?;
                    }
                }
            }
        }
        Ok(())
    }
}
