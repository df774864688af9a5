//! The collection manifest of a bucket: its scopes and collections.

use crate::CollectionId;

/// The version of a bucket's manifest, which grows with each change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ManifestUid(
    /// The plain number.
    pub u64,
);

/// A scope of a bucket; 0 is the default scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ScopeId(
    /// The plain number.
    pub u32,
);

/// All scopes and collections of a bucket. The default manifest has only the collection `_default` in the scope
/// `_default`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The version.
    pub uid: ManifestUid,
    /// The scopes, in order of creation.
    pub scopes: Vec<Scope>,
}

/// A scope and its collections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The id. It is never reused after the scope is dropped.
    pub id: ScopeId,
    /// The name.
    pub name: String,
    /// The collections, in order of creation.
    pub collections: Vec<Collection>,
}

/// A collection and its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collection {
    /// The id. It is never reused after the collection is dropped.
    pub id: CollectionId,
    /// The name.
    pub name: String,
    /// The longest time to live of its documents, in seconds. `None` means the bucket's setting; `Some(0)` means no
    /// limit, whatever the bucket's setting.
    pub max_ttl: Option<u32>,
    /// `true` if the collection keeps the history of its documents.
    pub history: bool,
}

impl Default for Manifest {
    fn default() -> Self {
        let name = || "_default".to_owned();
        Self {
            uid: ManifestUid(0),
            scopes: vec![Scope {
                id: ScopeId(0),
                name: name(),
                collections: vec![Collection {
                    id: CollectionId::DEFAULT,
                    name: name(),
                    max_ttl: None,
                    history: false,
                }],
            }],
        }
    }
}

impl Manifest {
    /// Returns the scope with this id.
    #[must_use]
    pub fn scope(&self, id: ScopeId) -> Option<&Scope> {
        self.scopes.iter().find(|scope| scope.id == id)
    }

    /// Returns the collection with this id, and its scope.
    #[must_use]
    pub fn collection(&self, id: CollectionId) -> Option<(&Scope, &Collection)> {
        self.collections().find(|(_, found)| found.id == id)
    }

    /// Iterates over all collections, each with its scope.
    pub fn collections(&self) -> impl Iterator<Item = (&Scope, &Collection)> {
        self.scopes
            .iter()
            .flat_map(|scope| scope.collections.iter().map(move |each| (scope, each)))
    }
}
