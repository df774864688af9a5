//! The filter of a stream by collections.

use kedge_types::{CollectionId, ScopeId, Status, decode_leb128};
use kedge_vbucket::{Item, OpenCollection, SystemEvent, SystemEventKind, is_system_key};

/// The documents that a stream covers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Filter {
    /// All documents.
    #[default]
    Everything,
    /// The documents of some collections.
    Collections(Vec<CollectionId>),
    /// The documents of a scope.
    Scope {
        /// The scope.
        scope: ScopeId,
        /// The collections of the scope: those that are open when the stream begins, updated by their events.
        collections: Vec<CollectionId>,
    },
}

impl Filter {
    /// Checks that the collections or the scope are open in the vBucket. The filter of a scope learns the collections
    /// of the scope.
    ///
    /// # Errors
    /// [`Status::UnknownCollection`] and [`Status::UnknownScope`].
    pub fn resolve(&mut self, open: &[OpenCollection], scopes: &[ScopeId]) -> Result<(), Status> {
        match self {
            Self::Everything => Ok(()),
            Self::Collections(ids) => {
                let is_open = |id: &CollectionId| open.iter().any(|open| open.id == *id);
                if ids.iter().all(is_open) {
                    Ok(())
                } else {
                    Err(Status::UnknownCollection)
                }
            }
            Self::Scope { scope, collections } => {
                if !scopes.contains(scope) {
                    return Err(Status::UnknownScope);
                }
                let of_scope = open.iter().filter(|open| open.scope == *scope);
                *collections = of_scope.map(|open| open.id).collect();
                Ok(())
            }
        }
    }

    /// Returns whether the stream covers a change. An event updates the filter.
    pub fn admits(&mut self, item: &Item) -> bool {
        if is_system_key(item.key()) {
            return SystemEvent::of_item(item).is_some_and(|event| self.follow(&event));
        }
        let collection = || decode_leb128(item.key()).map(|(id, _)| CollectionId(id));
        match self {
            Self::Everything => true,
            Self::Collections(ids)
            | Self::Scope {
                collections: ids, ..
            } => collection().is_some_and(|id| ids.contains(&id)),
        }
    }

    fn follow(&mut self, event: &SystemEvent) -> bool {
        let is_drop = event.kind == SystemEventKind::CollectionDropped;
        match self {
            Self::Everything => true,
            Self::Collections(ids) => {
                let is_of = !event.kind.is_of_scope() && ids.contains(&event.collection);
                if is_of && is_drop {
                    ids.retain(|id| *id != event.collection);
                }
                is_of
            }
            Self::Scope { scope, collections } => {
                if event.scope != *scope {
                    return false;
                }
                if !event.kind.is_of_scope() {
                    collections.retain(|id| *id != event.collection);
                    if !is_drop {
                        collections.push(event.collection);
                    }
                }
                true
            }
        }
    }

    /// Returns whether the stream is complete after this change, because its last collection or its scope was dropped.
    #[must_use]
    pub fn is_empty_after(&self, item: &Item) -> bool {
        match self {
            Self::Everything => false,
            Self::Collections(ids) => ids.is_empty(),
            Self::Scope { scope, .. } => {
                is_system_key(item.key())
                    && SystemEvent::of_item(item).is_some_and(|event| {
                        event.kind == SystemEventKind::ScopeDropped && event.scope == *scope
                    })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kedge_types::{Cas, ManifestUid, Seqno};
    use kedge_vbucket::ItemMeta;

    fn item(key: &[u8]) -> Item {
        Item::new(&ItemMeta::default(), key, &[])
    }

    fn event(kind: SystemEventKind, scope: u32, collection: u32) -> Item {
        let event = SystemEvent {
            kind,
            uid: ManifestUid(1),
            scope: ScopeId(scope),
            collection: CollectionId(collection),
            name: String::new(),
            max_ttl: None,
            history: false,
            start: Seqno(0),
        };
        event.item(Cas(1), Seqno(1))
    }

    fn open(ids: &[(u32, u32)]) -> Vec<OpenCollection> {
        let open = |&(id, scope)| OpenCollection::new(CollectionId(id), ScopeId(scope), Seqno(0));
        ids.iter().map(open).collect()
    }

    fn collections(ids: &[u32]) -> Filter {
        Filter::Collections(ids.iter().copied().map(CollectionId).collect())
    }

    fn scope(id: u32) -> Filter {
        Filter::Scope {
            scope: ScopeId(id),
            collections: Vec::new(),
        }
    }

    #[test]
    fn filter_admits_only_its_collections() {
        let there = open(&[(0, 0), (8, 9), (0x555, 9)]);
        let scopes = [0, 9].map(ScopeId);
        for (mut filter, default, other, third) in [
            (Filter::Everything, true, true, true),
            (collections(&[0, 0x555]), true, true, false),
            (scope(0), true, false, false),
            (scope(9), false, true, true),
        ] {
            filter.resolve(&there, &scopes).unwrap();
            let keys = [&b"\x00k"[..], b"\xd5\x0ak", b"\x08k"];
            let admitted = keys.map(|key| filter.admits(&item(key)));
            assert_eq!(admitted, [default, other, third], "{filter:?}");
        }
        assert!(!collections(&[0]).admits(&item(b"\x80")), "no key");
    }

    #[test]
    fn filter_rejects_unknown_collections_and_scopes() {
        let there = open(&[(0, 0)]);
        let check = |mut filter: Filter| filter.resolve(&there, &[ScopeId(0)]);
        assert_eq!(check(collections(&[0])), Ok(()));
        assert_eq!(check(collections(&[0, 8])), Err(Status::UnknownCollection));
        assert_eq!(check(scope(0)), Ok(()));
        assert_eq!(check(scope(8)), Err(Status::UnknownScope));
        assert_eq!(check(Filter::Everything), Ok(()));
    }

    #[test]
    fn collection_events_update_a_scope_filter() {
        use SystemEventKind::{CollectionCreated, CollectionDropped, ScopeCreated, ScopeDropped};
        let mut filter = scope(9);
        filter.resolve(&open(&[(8, 9)]), &[ScopeId(9)]).unwrap();
        assert!(!filter.admits(&event(CollectionCreated, 0, 11)));
        assert!(!filter.admits(&event(ScopeCreated, 12, 0)));
        assert!(filter.admits(&event(CollectionCreated, 9, 10)));
        assert!(filter.admits(&item(b"\x0ak")));
        let dropped = event(CollectionDropped, 9, 10);
        assert!(filter.admits(&dropped) && !filter.is_empty_after(&dropped));
        assert!(!filter.admits(&item(b"\x0ak")));
        let dropped = event(ScopeDropped, 9, 0);
        assert!(filter.admits(&dropped) && filter.is_empty_after(&dropped));

        let mut filter = collections(&[8, 10]);
        assert!(!filter.admits(&event(CollectionDropped, 9, 11)));
        let first = event(CollectionDropped, 9, 8);
        assert!(filter.admits(&first) && !filter.is_empty_after(&first));
        let last = event(CollectionDropped, 9, 10);
        assert!(filter.admits(&last) && filter.is_empty_after(&last));
    }
}
