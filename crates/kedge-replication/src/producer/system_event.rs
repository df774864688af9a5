//! Conversion of collection changes to messages.
//!
//! Source: Couchbase `docs/dcp/documentation/commands/system_event.md`. The flatbuffers of version 2 are those of
//! files: couchstore file format, section 3.4.

use super::format::Format;
use kedge_couchstore::kv::{self, CollectionDropped, CollectionOpened, ScopeDropped, ScopeOpened};
use kedge_protocol::binary::commands::dcp::{
    Head, SystemEvent, SystemEventKind, SystemEventPayload,
};
use kedge_vbucket::{Item, SystemEvent as Event, SystemEventKind as EventKind};

/// The version of data in the form of a flatbuffer.
const FLATBUFFERS: u8 = 2;

/// Returns whether an event can be encoded: changed settings have a form only as flatbuffers.
pub(super) fn is_told(format: &Format, item: &Item) -> bool {
    let event = Event::of_item(item);
    event.is_some_and(|event| kind_of(format, event.kind).is_some())
}

fn kind_of(format: &Format, kind: EventKind) -> Option<SystemEventKind> {
    Some(match kind {
        EventKind::CollectionCreated => SystemEventKind::CollectionBegan,
        EventKind::CollectionDropped => SystemEventKind::CollectionDropped,
        EventKind::ScopeCreated => SystemEventKind::ScopeCreated,
        EventKind::ScopeDropped => SystemEventKind::ScopeDropped,
        EventKind::CollectionModified if format.flatbuffer_events => {
            SystemEventKind::CollectionModified
        }
        EventKind::CollectionModified => return None,
    })
}

/// Appends the message for an event that the consumer sees.
pub(super) fn compose(format: &Format, head: &Head, item: &Item, out: &mut Vec<u8>) {
    let Some(event) = Event::of_item(item) else {
        return;
    };
    let Some(kind) = kind_of(format, event.kind) else {
        return;
    };
    let (version, data) = if format.flatbuffer_events {
        (FLATBUFFERS, flatbuffer(&event))
    } else {
        numbers(&event)
    };
    SystemEvent {
        seqno: item.seqno(),
        kind,
        version,
        name: event.name.as_bytes(),
        data: &data,
    }
    .encode(head, out);
}

/// Encodes an event in version 0, or in version 1 if it is about a collection with a time to live.
fn numbers(event: &Event) -> (u8, Vec<u8>) {
    let payload = SystemEventPayload {
        manifest_uid: event.uid.0,
        scope: event.scope.0,
        collection: (!event.kind.is_of_scope()).then_some(event.collection),
        max_ttl: event.max_ttl.filter(|_| !event.kind.is_drop()),
    };
    let mut data = Vec::with_capacity(20);
    payload.encode(&mut data);
    (u8::from(payload.max_ttl.is_some()), data)
}

fn flatbuffer(event: &Event) -> Vec<u8> {
    let (uid, scope, collection) = (event.uid, event.scope, event.collection);
    let name = || event.name.clone();
    let settings = || CollectionOpened {
        uid,
        scope,
        collection,
        max_ttl: event.max_ttl,
        name: name(),
        history: event.history,
        ..CollectionOpened::default()
    };
    let is_system = false;
    let event = match event.kind {
        EventKind::CollectionCreated => kv::SystemEvent::CollectionOpened(settings()),
        EventKind::CollectionModified => kv::SystemEvent::CollectionModified(settings()),
        EventKind::CollectionDropped => kv::SystemEvent::CollectionDropped(CollectionDropped {
            uid,
            scope,
            collection,
            is_system,
        }),
        EventKind::ScopeCreated => kv::SystemEvent::ScopeOpened(ScopeOpened {
            uid,
            scope,
            name: name(),
        }),
        EventKind::ScopeDropped => kv::SystemEvent::ScopeDropped(ScopeDropped {
            uid,
            scope,
            is_system,
        }),
    };
    event.encode()
}
