//! Encoding of system events for the file, and decoding. Couchstore file format, sections 3.1 and 3.4.

use kedge_couchstore::kv::{
    CollectionDropped, CollectionOpened, KvError, ScopeDropped, ScopeOpened,
    StoredSystemEvent as FileEvent, SystemEventKind as FileKind,
};
use kedge_types::{CollectionId, Seqno};
use kedge_vbucket::{SystemEvent, SystemEventKind};

/// Encodes the body of the event's entry.
pub(crate) fn body_of(event: &SystemEvent) -> Vec<u8> {
    let SystemEvent {
        kind,
        uid,
        scope,
        collection,
        name,
        max_ttl,
        history,
        start: _,
    } = event.clone();
    let opened = |name| CollectionOpened {
        uid,
        scope,
        collection,
        max_ttl,
        name,
        history,
        ..CollectionOpened::default()
    };
    let event = match kind {
        SystemEventKind::CollectionCreated => FileEvent::CollectionOpened(opened(name)),
        SystemEventKind::CollectionModified => FileEvent::CollectionModified(opened(name)),
        SystemEventKind::CollectionDropped => FileEvent::CollectionDropped(CollectionDropped {
            uid,
            scope,
            collection,
            is_system: false,
        }),
        SystemEventKind::ScopeCreated => FileEvent::ScopeOpened(ScopeOpened { uid, scope, name }),
        SystemEventKind::ScopeDropped => FileEvent::ScopeDropped(ScopeDropped {
            uid,
            scope,
            is_system: false,
        }),
    };
    event.encode()
}

/// Decodes the event of an entry with this body.
pub(crate) fn event_of(kind: FileKind, dropped: bool, body: &[u8]) -> Result<SystemEvent, KvError> {
    let event = |kind, uid, scope| SystemEvent {
        kind,
        uid,
        scope,
        collection: CollectionId::DEFAULT,
        name: String::new(),
        max_ttl: None,
        history: false,
        start: Seqno(0),
    };
    let opened = |kind, opened: CollectionOpened| SystemEvent {
        collection: opened.collection,
        name: opened.name,
        max_ttl: opened.max_ttl,
        history: opened.history,
        ..event(kind, opened.uid, opened.scope)
    };
    Ok(match FileEvent::decode(kind, dropped, body)? {
        FileEvent::CollectionOpened(it) => opened(SystemEventKind::CollectionCreated, it),
        FileEvent::CollectionModified(it) => opened(SystemEventKind::CollectionModified, it),
        FileEvent::CollectionDropped(it) => SystemEvent {
            collection: it.collection,
            ..event(SystemEventKind::CollectionDropped, it.uid, it.scope)
        },
        FileEvent::ScopeOpened(it) => SystemEvent {
            name: it.name,
            ..event(SystemEventKind::ScopeCreated, it.uid, it.scope)
        },
        FileEvent::ScopeDropped(it) => event(SystemEventKind::ScopeDropped, it.uid, it.scope),
    })
}
