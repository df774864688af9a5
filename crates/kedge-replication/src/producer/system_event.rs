//! Conversion of collection changes to messages.
//!
//! Source: Couchbase `docs/dcp/documentation/commands/system_event.md`. The flatbuffers of version 2 are those of
//! files: couchstore file format, section 3.4.

use super::format::MessageFormat;
use kedge_couchstore::kv::{self, CollectionDropped, CollectionOpened, ScopeDropped, ScopeOpened};
use kedge_protocol::binary::commands::dcp::{
    DcpHeader, DcpSystemEvent, DcpSystemEventKind, SystemEventPayload,
};
use kedge_vbucket::{Item, SystemEvent, SystemEventKind};

/// The version of data in the form of a flatbuffer.
const FLATBUFFERS: u8 = 2;

/// Returns whether an event can be encoded: changed settings have a form only as flatbuffers.
pub(super) fn is_told(format: &MessageFormat, item: &Item) -> bool {
    let event = SystemEvent::of_item(item);
    event.is_some_and(|event| kind_of(format, event.kind).is_some())
}

fn kind_of(format: &MessageFormat, kind: SystemEventKind) -> Option<DcpSystemEventKind> {
    Some(match kind {
        SystemEventKind::CollectionCreated => DcpSystemEventKind::CollectionBegan,
        SystemEventKind::CollectionDropped => DcpSystemEventKind::CollectionDropped,
        SystemEventKind::ScopeCreated => DcpSystemEventKind::ScopeCreated,
        SystemEventKind::ScopeDropped => DcpSystemEventKind::ScopeDropped,
        SystemEventKind::CollectionModified if format.flatbuffer_events => {
            DcpSystemEventKind::CollectionModified
        }
        SystemEventKind::CollectionModified => return None,
    })
}

/// Appends the message for an event that the consumer sees.
pub(super) fn compose(format: &MessageFormat, head: &DcpHeader, item: &Item, out: &mut Vec<u8>) {
    let Some(event) = SystemEvent::of_item(item) else {
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
    DcpSystemEvent {
        seqno: item.seqno(),
        kind,
        version,
        name: event.name.as_bytes(),
        data: &data,
    }
    .encode(head, out);
}

/// Encodes an event in version 0, or in version 1 if it is about a collection with a time to live.
fn numbers(event: &SystemEvent) -> (u8, Vec<u8>) {
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

fn flatbuffer(event: &SystemEvent) -> Vec<u8> {
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
        SystemEventKind::CollectionCreated => kv::StoredSystemEvent::CollectionOpened(settings()),
        SystemEventKind::CollectionModified => {
            kv::StoredSystemEvent::CollectionModified(settings())
        }
        SystemEventKind::CollectionDropped => {
            kv::StoredSystemEvent::CollectionDropped(CollectionDropped {
                uid,
                scope,
                collection,
                is_system,
            })
        }
        SystemEventKind::ScopeCreated => kv::StoredSystemEvent::ScopeOpened(ScopeOpened {
            uid,
            scope,
            name: name(),
        }),
        SystemEventKind::ScopeDropped => kv::StoredSystemEvent::ScopeDropped(ScopeDropped {
            uid,
            scope,
            is_system,
        }),
    };
    event.encode()
}
