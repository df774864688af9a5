//! Conversion of stream messages to events of a vBucket.

use super::ConsumerEvent;
use kedge_protocol::binary::commands::dcp as wire;
use kedge_protocol::binary::commands::dcp::{
    DcpBody, DcpDeletion, DcpExpiration, DcpMutation, DcpPrepare, SnapshotFlags, SnapshotMarker,
};
use kedge_types::{
    Cas, CollectionId, Datatype, DocKey, Expiry, ManifestUid, RevSeqno, ScopeId, Seqno, Status,
    VbId,
};
use kedge_vbucket::{
    DcpSnapshot, Deletion, Item, ItemMeta, Received, SnapshotKind, SystemEvent, SystemEventKind,
    VbState,
};

/// Returns the event of a message for its vBucket.
pub(super) fn event(
    vb: VbId,
    body: &DcpBody<'_>,
    collections: bool,
) -> Result<ConsumerEvent, Status> {
    let stored = |key| stored_key(key, collections);
    let received = match body {
        DcpBody::SnapshotMarker(marker) => {
            let snapshot = snapshot(marker);
            return Ok(ConsumerEvent::Snapshot { vb, snapshot });
        }
        DcpBody::StreamEnd(end) => {
            let reason = end.reason;
            return Ok(ConsumerEvent::Ended { vb, reason });
        }
        DcpBody::SetVbucketState(set) => {
            let state = VbState::from_number(set.state).ok_or(Status::Invalid)?;
            return Ok(ConsumerEvent::SetState { vb, state });
        }
        DcpBody::Mutation(mutation) => {
            Received::Document(document(mutation, &stored(mutation.key)?))
        }
        DcpBody::Deletion(DcpDeletion {
            seqno,
            rev,
            delete_time,
            cas,
            datatype,
            key,
            value,
        }) => {
            let when = Expiry(delete_time.unwrap_or(0));
            let meta = tombstone((*cas, *seqno, *rev), *datatype, Deletion::Explicit, when);
            Received::Document(Item::new(&meta, stored(key)?.as_bytes(), &[value]))
        }
        DcpBody::Expiration(DcpExpiration {
            seqno,
            rev,
            delete_time,
            cas,
            datatype,
            key,
            value,
        }) => {
            let when = Expiry(*delete_time);
            let meta = tombstone((*cas, *seqno, *rev), *datatype, Deletion::Expired, when);
            Received::Document(Item::new(&meta, stored(key)?.as_bytes(), &[value]))
        }
        DcpBody::Prepare(prepare) => Received::Prepare(prepared(prepare, &stored(prepare.key)?)),
        DcpBody::Commit(commit) => Received::Commit {
            key: stored(commit.key)?.as_bytes().into(),
            prepared: commit.prepared,
            seqno: commit.seqno,
        },
        DcpBody::Abort(abort) => Received::Abort {
            key: stored(abort.key)?.as_bytes().into(),
            prepared: abort.prepared,
            seqno: abort.seqno,
        },
        DcpBody::SystemEvent(event) => Received::System {
            event: system_event(event)?,
            seqno: event.seqno,
        },
        DcpBody::SeqnoAdvanced(advanced) => Received::Advance(advanced.seqno),
        // The consumer requests no other kind.
        _ => return Err(Status::NotSupported),
    };
    Ok(ConsumerEvent::Received { vb, received })
}

fn stored_key(wire: &[u8], collections: bool) -> Result<DocKey, Status> {
    let key = if collections {
        DocKey::from_prefixed(wire)
    } else {
        DocKey::new(CollectionId::DEFAULT, wire)
    };
    // Items under such keys are events, which have a message of their own.
    let key = key
        .ok()
        .filter(|key| !kedge_vbucket::is_system_key(key.as_bytes()));
    key.ok_or(Status::Invalid)
}

fn document(mutation: &DcpMutation<'_>, key: &DocKey) -> Item {
    let meta = ItemMeta {
        cas: mutation.cas,
        seqno: mutation.seqno,
        rev: mutation.rev,
        flags: mutation.flags,
        expiry: mutation.expiry,
        datatype: mutation.datatype,
        deleted: None,
        level: None,
    };
    Item::new(&meta, key.as_bytes(), &[mutation.value])
}

fn tombstone(
    (cas, seqno, rev): (Cas, Seqno, RevSeqno),
    datatype: Datatype,
    deleted: Deletion,
    when: Expiry,
) -> ItemMeta {
    ItemMeta {
        cas,
        seqno,
        rev,
        expiry: when,
        datatype,
        deleted: Some(deleted),
        ..ItemMeta::default()
    }
}

fn prepared(prepare: &DcpPrepare<'_>, key: &DocKey) -> Item {
    let meta = ItemMeta {
        cas: prepare.cas,
        seqno: prepare.seqno,
        rev: prepare.rev,
        flags: prepare.flags,
        expiry: prepare.expiry,
        datatype: prepare.datatype,
        deleted: prepare.deleted.then_some(Deletion::Explicit),
        level: Some(prepare.level),
    };
    Item::new(&meta, key.as_bytes(), &[prepare.value])
}

/// Reads the data of a message of version 0 or 1.
fn system_event(event: &wire::DcpSystemEvent<'_>) -> Result<SystemEvent, Status> {
    let kind = match event.kind {
        wire::DcpSystemEventKind::CollectionBegan => SystemEventKind::CollectionCreated,
        wire::DcpSystemEventKind::CollectionDropped => SystemEventKind::CollectionDropped,
        wire::DcpSystemEventKind::ScopeCreated => SystemEventKind::ScopeCreated,
        wire::DcpSystemEventKind::ScopeDropped => SystemEventKind::ScopeDropped,
        wire::DcpSystemEventKind::CollectionModified => return Err(Status::NotSupported),
    };
    let payload = wire::SystemEventPayload::parse(event)?;
    let name = std::str::from_utf8(event.name).map_err(|_| Status::Invalid)?;
    Ok(SystemEvent {
        kind,
        uid: ManifestUid(payload.manifest_uid),
        scope: ScopeId(payload.scope),
        collection: payload.collection.unwrap_or_default(),
        name: if kind.is_drop() { "" } else { name }.to_owned(),
        max_ttl: payload.max_ttl,
        history: false,
        start: Seqno(0),
    })
}

/// Converts a marker. Only disk snapshots have the highest completed seqno: in snapshots from memory, commits and
/// aborts are changes themselves.
fn snapshot(marker: &SnapshotMarker) -> DcpSnapshot {
    let is_disk = marker.flags.contains(SnapshotFlags::DISK);
    let visible = marker.visible;
    let on_disk = visible.filter(|_| is_disk);
    let disk = on_disk.and_then(|visible| visible.disk);
    DcpSnapshot {
        start: marker.start,
        end: marker.end,
        kind: if is_disk {
            SnapshotKind::Disk
        } else {
            SnapshotKind::Memory
        },
        max_visible: visible.map(|visible| visible.max_visible),
        high_completed: on_disk.map(|visible| visible.high_completed),
        high_prepared: disk.map(|disk| disk.high_prepared),
        purge: disk.map(|disk| disk.purge),
        checkpoint: marker.flags.contains(SnapshotFlags::CHECKPOINT),
        repeats_keys: marker.flags.contains(SnapshotFlags::MAY_HAVE_DUPLICATES),
    }
}
