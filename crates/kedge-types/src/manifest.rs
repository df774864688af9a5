//! The collection manifest of a bucket: which scopes and collections there are.

use crate::CollectionId;

/// Version of the manifest of a bucket; grows with each change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ManifestUid(
    /// The bare number.
    pub u64,
);

/// A scope of a bucket; 0 is the default scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ScopeId(
    /// The bare number.
    pub u32,
);

/// All scopes and collections of a bucket. The default has `_default` in `_default` alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Its version.
    pub uid: ManifestUid,
    /// The scopes, in the order in which they were made.
    pub scopes: Vec<Scope>,
}

/// A scope and what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Its id, never used again when it is dropped.
    pub id: ScopeId,
    /// Its name.
    pub name: String,
    /// Its collections, in the order in which they were made.
    pub collections: Vec<Collection>,
}

/// A collection and its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collection {
    /// Its id, never used again when it is dropped.
    pub id: CollectionId,
    /// Its name.
    pub name: String,
    /// Seconds that its documents live at most; `None`: as the bucket says, `Some(0)`: for ever, whatever the bucket says.
    pub max_ttl: Option<u32>,
    /// Whether the history of its documents is asked for.
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
    /// The scope of this id.
    #[must_use]
    pub fn scope(&self, id: ScopeId) -> Option<&Scope> {
        self.scopes.iter().find(|scope| scope.id == id)
    }

    /// The collection of this id, with its scope.
    #[must_use]
    pub fn collection(&self, id: CollectionId) -> Option<(&Scope, &Collection)> {
        self.collections().find(|(_, found)| found.id == id)
    }

    /// All collections, each with its scope.
    pub fn collections(&self) -> impl Iterator<Item = (&Scope, &Collection)> {
        self.scopes
            .iter()
            .flat_map(|scope| scope.collections.iter().map(move |each| (scope, each)))
    }
}
