//! The manifest as JSON, in its three forms: for clients of the key-value port, for management, and for storage.
//!
//! Ids and uids are hexadecimal text in all of them. `maxTTL` is in seconds. On the key-value port it is absent if the
//! bucket's default applies, and 0 if there is none; in management it is 0 if the bucket's default applies, and -1 if
//! there is none.

use std::collections::BTreeSet;
use std::sync::Arc;

use kedge_types::{Collection, CollectionId, Manifest, ManifestUid, Scope, ScopeId};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{DEFAULT_NAME, FIRST_ID, ManifestKeeper};
use crate::ClusterError;

#[derive(Serialize, Deserialize)]
struct ManifestJson<C> {
    uid: HexId,
    scopes: Vec<ScopeJson<C>>,
}

#[derive(Serialize, Deserialize)]
struct ScopeJson<C> {
    name: String,
    uid: HexId,
    collections: Vec<C>,
}

/// The form for clients of the key-value port.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClientForm {
    name: String,
    uid: HexId,
    #[serde(rename = "maxTTL", default, skip_serializing_if = "Option::is_none")]
    max_ttl: Option<u32>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    history: bool,
}

/// The form for management.
#[derive(Serialize)]
struct RestForm {
    name: String,
    uid: HexId,
    #[serde(rename = "maxTTL")]
    max_ttl: i64,
    history: bool,
}

/// A number that is written in hexadecimal.
struct HexId(u64);

impl Serialize for HexId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:x}", self.0))
    }
}

impl<'de> Deserialize<'de> for HexId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let is_plain = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(&text, 16).ok().filter(|_| is_plain);
        number
            .map(Self)
            .ok_or_else(|| de::Error::custom(format!("\"{text}\" is no hexadecimal number")))
    }
}

impl From<&Collection> for ClientForm {
    fn from(collection: &Collection) -> Self {
        Self {
            name: collection.name.clone(),
            uid: HexId(u64::from(collection.id.get())),
            max_ttl: collection.max_ttl,
            history: collection.history,
        }
    }
}

impl From<&Collection> for RestForm {
    fn from(collection: &Collection) -> Self {
        let max_ttl = match collection.max_ttl {
            None => 0,
            Some(0) => -1,
            Some(secs) => i64::from(secs),
        };
        Self {
            name: collection.name.clone(),
            uid: HexId(u64::from(collection.id.get())),
            max_ttl,
            history: collection.history,
        }
    }
}

fn document<'m, C: From<&'m Collection>>(manifest: &'m Manifest) -> ManifestJson<C> {
    let scope = |scope: &'m Scope| ScopeJson {
        name: scope.name.clone(),
        uid: HexId(u64::from(scope.id.0)),
        collections: scope.collections.iter().map(C::from).collect(),
    };
    ManifestJson {
        uid: HexId(manifest.uid.0),
        scopes: manifest.scopes.iter().map(scope).collect(),
    }
}

fn text(document: &impl Serialize) -> String {
    serde_json::to_string(document).expect("strings and numbers always serialise")
}

/// Returns the manifest in the form of COLLECTIONS_GET_MANIFEST.
#[must_use]
pub fn manifest_json(manifest: &Manifest) -> String {
    text(&document::<ClientForm>(manifest))
}

/// Returns the manifest in the form of management, where `maxTTL` and `history` are always present.
#[must_use]
pub fn manifest_rest_json(manifest: &Manifest) -> String {
    text(&document::<RestForm>(manifest))
}

/// Reads a manifest that [`manifest_json`] wrote.
///
/// # Errors
/// `Damaged` when it is no manifest, `Manifest` when it contradicts itself.
pub fn parse_manifest(json: &[u8]) -> Result<Manifest, ClusterError> {
    let document: ManifestJson<ClientForm> =
        serde_json::from_slice(json).map_err(ClusterError::Damaged)?;
    read(document).map_err(ClusterError::Manifest)
}

fn read(document: ManifestJson<ClientForm>) -> Result<Manifest, String> {
    let small = |HexId(number): HexId| {
        let id = u32::try_from(number).ok();
        id.ok_or_else(|| format!("{number:x} is no id"))
    };
    let mut manifest = Manifest {
        uid: ManifestUid(document.uid.0),
        scopes: Vec::with_capacity(document.scopes.len()),
    };
    for scope in document.scopes {
        let collection = |it: ClientForm| {
            Ok(Collection {
                id: CollectionId(small(it.uid)?),
                name: it.name,
                max_ttl: it.max_ttl,
                history: it.history,
            })
        };
        manifest.scopes.push(Scope {
            id: ScopeId(small(scope.uid)?),
            name: scope.name,
            collections: scope
                .collections
                .into_iter()
                .map(collection)
                .collect::<Result<_, String>>()?,
        });
    }
    check(&manifest)?;
    Ok(manifest)
}

/// Checks that ids and names are unique, and that the default scope exists.
pub(super) fn check(manifest: &Manifest) -> Result<(), String> {
    let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
    for scope in &manifest.scopes {
        if !ids.insert(scope.id) || !names.insert(&scope.name) {
            return Err(format!("scope \"{}\" is there twice", scope.name));
        }
        if (scope.id == ScopeId(0)) != (scope.name == DEFAULT_NAME) {
            return Err(format!("scope \"{}\" has the wrong id", scope.name));
        }
        let mut names = BTreeSet::new();
        for collection in &scope.collections {
            if !names.insert(&collection.name) {
                let name = &collection.name;
                return Err(format!("collection \"{name}\" is there twice"));
            }
        }
    }
    if !ids.contains(&ScopeId(0)) {
        return Err("it has no default scope".to_owned());
    }
    let mut ids = BTreeSet::new();
    for (scope, collection) in manifest.collections() {
        let name = &collection.name;
        if !ids.insert(collection.id) {
            return Err(format!("the id of collection \"{name}\" is another's, too"));
        }
        let is_default = scope.id == ScopeId(0) && name == DEFAULT_NAME;
        if (collection.id == CollectionId::DEFAULT) != is_default {
            return Err(format!("collection \"{name}\" has the wrong id"));
        }
    }
    Ok(())
}

/// The form that is saved and sent between nodes: the manifest and the next ids.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SavedManifest {
    next_scope: HexId,
    next_collection: HexId,
    #[serde(flatten)]
    manifest: ManifestJson<ClientForm>,
}

impl Serialize for ManifestKeeper {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let kept = SavedManifest {
            next_scope: HexId(u64::from(self.next_scope)),
            next_collection: HexId(u64::from(self.next_collection)),
            manifest: document(&self.manifest),
        };
        kept.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ManifestKeeper {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let kept = SavedManifest::deserialize(deserializer)?;
        let manifest = read(kept.manifest).map_err(de::Error::custom)?;
        let scopes = manifest.scopes.iter().map(|scope| scope.id.0);
        let collections = manifest.collections().map(|(_, it)| it.id.get());
        // An id in use must not be assigned again.
        let next = |HexId(next): HexId, largest: Option<u32>| {
            let next = u32::try_from(next).ok();
            next.filter(|next| *next >= FIRST_ID && largest < Some(*next))
                .ok_or_else(|| de::Error::custom("the next id is one that is there"))
        };
        Ok(Self {
            next_scope: next(kept.next_scope, scopes.max())?,
            next_collection: next(kept.next_collection, collections.max())?,
            manifest: Arc::new(manifest),
        })
    }
}

impl ManifestKeeper {
    /// Reads a document that [`Self::to_json`] wrote.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn from_json(json: &[u8]) -> Result<Self, ClusterError> {
        crate::document::read::<VersionedManifest>(json, VERSION).map(|it| it.keeper)
    }

    /// Encodes the document to save.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let versioned = VersionedManifest {
            version: VERSION,
            keeper: self.clone(),
        };
        serde_json::to_vec_pretty(&versioned).expect("strings and numbers always serialise")
    }
}

const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct VersionedManifest {
    version: u32,
    #[serde(flatten)]
    keeper: ManifestKeeper,
}
