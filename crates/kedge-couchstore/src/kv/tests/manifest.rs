//! Collection documents and system events.

use super::{collections, hex, seqnos};
use crate::kv::{
    CollectionDropped, CollectionOpened, CommittedManifest, DroppedCollection, DroppedCollections,
    ScopeDropped, ScopeOpened, Scopes, StoredCollection, StoredCollections, StoredScope,
    StoredSystemEvent, SystemEventKind,
};
use kedge_types::{CollectionId, ManifestUid, ScopeId, Seqno};
use proptest::prelude::*;

/// Documents of the golden file, under its headers at 331,776 (`dropped` and `manifest`) and 8,192.
const DROPPED: &str = "0c00000000000600080004000600000004000000010000001000000000000a0018000800100004000a0000\
    000900000001000000000000002b00000000000000";
const MANIFEST: &str = "0c000000000006000c000400060000000300000000000000";
const OPEN: &str = "0c0000000000060008000400060000000400000002000000400000001400000010000800000000000000000000\
    0004001000000004000000080000005f64656661756c740000000010002400180008000c0007001000140010000000\
    0000000108000000090000003c00000010000000010000000000000000000000050000006672756974000000";
const SCOPES: &str = "0c0000000000060008000400060000000400000002000000340000001000000000000a000800000000000400\
    0a00000004000000080000005f64656661756c7400000a0018000c00040008000a0000000800000010000000020000\
    0000000000000000000400000073686f7000000000";
/// Bodies of its system events, seqnos 1, 2 and 43.
const COLLECTION_OPENED: &str = "180000000000000010002400180008000c000700100014001000000000000001080000000900\
    00003c00000010000000010000000000000000000000050000006672756974000000";
const SCOPE_OPENED: &str = "140000000000000000000a0018000c00040008000a00000008000000100000000200000000000000\
    000000000400000073686f7000000000";
const COLLECTION_DROPPED: &str =
    "140000000000000000000a0014000c00040008000a00000008000000090000000300000000000000";

#[test]
fn documents_of_the_golden_file() {
    let manifest = CommittedManifest {
        uid: ManifestUid(3),
    };
    assert_eq!(CommittedManifest::decode(&hex(MANIFEST)), Ok(manifest));
    assert_eq!(CommittedManifest::decode(&manifest.encode()), Ok(manifest));

    let dropped = DroppedCollections {
        entries: vec![DroppedCollection {
            start: Seqno(1),
            end: Seqno(43),
            collection: CollectionId(9),
        }],
    };
    assert_eq!(
        DroppedCollections::decode(&hex(DROPPED)).as_ref(),
        Ok(&dropped)
    );
    assert_eq!(DroppedCollections::decode(&dropped.encode()), Ok(dropped));

    let default = StoredCollection {
        name: "_default".to_owned(),
        ..StoredCollection::default()
    };
    let fruit = StoredCollection {
        start: Seqno(1),
        scope: ScopeId(8),
        collection: CollectionId(9),
        max_ttl: Some(60),
        name: "fruit".to_owned(),
        ..StoredCollection::default()
    };
    let open = StoredCollections {
        entries: vec![fruit, default],
    };
    assert_eq!(StoredCollections::decode(&hex(OPEN)).as_ref(), Ok(&open));
    assert_eq!(StoredCollections::decode(&open.encode()), Ok(open));

    let scope = |start, id, name: &str| StoredScope {
        start: Seqno(start),
        scope: ScopeId(id),
        name: name.to_owned(),
    };
    let scopes = Scopes {
        entries: vec![scope(2, 8, "shop"), scope(0, 0, "_default")],
    };
    assert_eq!(Scopes::decode(&hex(SCOPES)).as_ref(), Ok(&scopes));
    assert_eq!(Scopes::decode(&scopes.encode()), Ok(scopes));
}

#[test]
fn system_events_of_the_golden_file() {
    for (body, kind, deleted, expected) in [
        (
            COLLECTION_OPENED,
            SystemEventKind::Collection,
            false,
            StoredSystemEvent::CollectionOpened(CollectionOpened {
                uid: ManifestUid(1),
                scope: ScopeId(8),
                collection: CollectionId(9),
                max_ttl: Some(60),
                name: "fruit".to_owned(),
                ..CollectionOpened::default()
            }),
        ),
        (
            SCOPE_OPENED,
            SystemEventKind::Scope,
            false,
            StoredSystemEvent::ScopeOpened(ScopeOpened {
                uid: ManifestUid(2),
                scope: ScopeId(8),
                name: "shop".to_owned(),
            }),
        ),
        (
            COLLECTION_DROPPED,
            SystemEventKind::Collection,
            true,
            StoredSystemEvent::CollectionDropped(CollectionDropped {
                uid: ManifestUid(3),
                scope: ScopeId(8),
                collection: CollectionId(9),
                is_system: false,
            }),
        ),
    ] {
        let event = StoredSystemEvent::decode(kind, deleted, &hex(body)).expect("decodes");
        assert_eq!(event, expected);
        assert_eq!((event.key().0, event.key().2), (kind, deleted));
        assert_eq!(
            StoredSystemEvent::decode(kind, deleted, &event.encode()),
            Ok(event)
        );
    }
}

#[test]
fn drop_of_a_collection_with_settings_is_rejected() {
    let body = hex(COLLECTION_OPENED);
    let kind = SystemEventKind::ModifyCollection;
    assert!(matches!(
        StoredSystemEvent::decode(kind, false, &body),
        Ok(StoredSystemEvent::CollectionModified(_))
    ));
    assert!(StoredSystemEvent::decode(kind, true, &body).is_err());
}

#[test]
fn empty_manifest_is_valid() {
    assert_eq!(
        StoredCollections::decode(&StoredCollections::default().encode()),
        Ok(StoredCollections::default())
    );
    assert_eq!(
        CommittedManifest::decode(&CommittedManifest::default().encode()),
        Ok(CommittedManifest::default())
    );
}

fn names() -> impl Strategy<Value = String> {
    prop_oneof!["[a-zA-Z0-9_%-]{0,30}", any::<String>()]
}

prop_compose! {
    fn opens()(
        start in seqnos(),
        scope: u32,
        collection in collections(),
        max_ttl: Option<u32>,
        name in names(),
        truths: (bool, bool),
        flush_uid: u64,
    ) -> StoredCollection {
        StoredCollection {
            start,
            scope: ScopeId(scope),
            collection,
            max_ttl,
            name,
            history: truths.0,
            metered: truths.1,
            flush_uid: ManifestUid(flush_uid),
        }
    }
}

prop_compose! {
    fn events()(
        kind in 0..5_u8,
        uid: u64,
        open in opens(),
        max_visible in seqnos(),
        is_system: bool,
    ) -> StoredSystemEvent {
        let uid = ManifestUid(uid);
        let settings = CollectionOpened {
            uid,
            scope: open.scope,
            collection: open.collection,
            max_ttl: open.max_ttl,
            name: open.name.clone(),
            history: open.history,
            default_collection_max_visible: max_visible,
            metered: open.metered,
            flush_uid: open.flush_uid,
        };
        let (scope, collection) = (open.scope, open.collection);
        match kind {
            0 => StoredSystemEvent::CollectionOpened(settings),
            1 => StoredSystemEvent::CollectionModified(settings),
            2 => StoredSystemEvent::CollectionDropped(CollectionDropped { uid, scope, collection, is_system }),
            3 => StoredSystemEvent::ScopeOpened(ScopeOpened { uid, scope, name: open.name }),
            _ => StoredSystemEvent::ScopeDropped(ScopeDropped { uid, scope, is_system }),
        }
    }
}

proptest! {
    #[test]
    fn round_trip_of_collections(entries in prop::collection::vec(opens(), 0..6)) {
        let open = StoredCollections { entries };
        prop_assert_eq!(StoredCollections::decode(&open.encode()), Ok(open.clone()));
        let scope = |entry: &StoredCollection| StoredScope {
            start: entry.start,
            scope: entry.scope,
            name: entry.name.clone(),
        };
        let scopes = Scopes { entries: open.entries.iter().map(scope).collect() };
        prop_assert_eq!(Scopes::decode(&scopes.encode()), Ok(scopes));
        let dropped = |entry: &StoredCollection| DroppedCollection {
            start: entry.start,
            end: Seqno(entry.flush_uid.0),
            collection: entry.collection,
        };
        let dropped = DroppedCollections { entries: open.entries.iter().map(dropped).collect() };
        prop_assert_eq!(DroppedCollections::decode(&dropped.encode()), Ok(dropped));
    }

    #[test]
    fn round_trip_of_events(event in events()) {
        let (kind, _, deleted) = event.key();
        prop_assert_eq!(StoredSystemEvent::decode(kind, deleted, &event.encode()), Ok(event));
    }
}
