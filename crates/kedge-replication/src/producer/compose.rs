//! Conversion of changes to messages.

use super::format::MessageFormat;
use super::system_event;
use super::value::{Unsendable, ValueEncoder};
use kedge_protocol::binary::commands::dcp::{
    DcpAbort, DcpCommit, DcpDeletion, DcpExpiration, DcpHeader, DcpMutation, DcpPrepare,
    DiskMarker, MarkerVersion, SnapshotFlags, SnapshotMarker, VisibleMarker,
};
use kedge_types::{CollectionId, Seqno, decode_leb128};
use kedge_vbucket::{Change, DcpSnapshot, Deletion, Item, SnapshotKind};

/// Returns the key as the connection encodes it; `None` if it cannot name the document's collection.
fn wire_key<'a>(format: &MessageFormat, stored: &'a [u8]) -> Option<&'a [u8]> {
    if format.collections {
        return Some(stored);
    }
    match decode_leb128(stored) {
        Some((id, prefix_len)) if CollectionId(id) == CollectionId::DEFAULT => {
            Some(&stored[prefix_len..])
        }
        _ => None,
    }
}

/// Returns whether the consumer sees a change: without SyncWrites, it sees what clients see.
pub(super) fn sees(format: &MessageFormat, change: &Change) -> bool {
    let Some(item) = change.item() else {
        return false;
    };
    if let Change::System(item) = change {
        return format.collections && system_event::is_told(format, item);
    }
    let is_visible = matches!(change, Change::Document(_) | Change::Commit { .. });
    (is_visible || format.sync_writes) && wire_key(format, item.key()).is_some()
}

/// Appends the message for a change that the consumer sees.
pub(super) fn change(
    format: &MessageFormat,
    shaper: &mut ValueEncoder,
    head: &DcpHeader,
    change: &Change,
    out: &mut Vec<u8>,
) -> Result<(), Unsendable> {
    if let Change::System(item) = change {
        system_event::compose(format, head, item, out);
        return Ok(());
    }
    let Some(key) = change.item().and_then(|item| wire_key(format, item.key())) else {
        return Ok(());
    };
    match change {
        Change::Document(item) => document(format, shaper, head, (item, key), out)?,
        Change::Commit { item, prepared } if format.sync_writes => DcpCommit {
            prepared: *prepared,
            seqno: item.seqno(),
            cas: item.cas(),
            key,
        }
        .encode(head, out),
        Change::Commit { item, .. } => document(format, shaper, head, (item, key), out)?,
        Change::Prepare(item) => prepare(format, shaper, head, (item, key), out)?,
        Change::Abort { item, prepared } => DcpAbort {
            prepared: *prepared,
            seqno: item.seqno(),
            key,
        }
        .encode(head, out),
        _ => {}
    }
    Ok(())
}

fn document(
    format: &MessageFormat,
    shaper: &mut ValueEncoder,
    head: &DcpHeader,
    (item, key): (&Item, &[u8]),
    out: &mut Vec<u8>,
) -> Result<(), Unsendable> {
    let (datatype, value) = shaper.shape(format, item)?;
    let (seqno, rev, cas) = (item.seqno(), item.rev_seqno(), item.cas());
    if !item.is_deleted() {
        DcpMutation {
            seqno,
            rev,
            flags: item.flags(),
            expiry: item.expiry(),
            lock_until: 0,
            nru: nru(format, item),
            cas,
            datatype,
            key,
            value,
        }
        .encode(head, out);
    } else if format.expiry_opcode && item.meta().deleted == Some(Deletion::Expired) {
        DcpExpiration {
            seqno,
            rev,
            delete_time: item.expiry().0,
            cas,
            datatype,
            key,
            value,
        }
        .encode(head, out);
    } else {
        DcpDeletion {
            seqno,
            rev,
            delete_time: format.delete_times.then_some(item.expiry().0),
            cas,
            datatype,
            key,
            value,
        }
        .encode(head, out);
    }
    Ok(())
}

fn prepare(
    format: &MessageFormat,
    shaper: &mut ValueEncoder,
    head: &DcpHeader,
    (item, key): (&Item, &[u8]),
    out: &mut Vec<u8>,
) -> Result<(), Unsendable> {
    // A prepare without a level cannot be encoded.
    let level = item.level().ok_or(Unsendable)?;
    let (datatype, value) = shaper.shape(format, item)?;
    DcpPrepare {
        seqno: item.seqno(),
        rev: item.rev_seqno(),
        flags: item.flags(),
        expiry: item.expiry(),
        lock_until: 0,
        nru: nru(format, item),
        deleted: item.is_deleted(),
        level,
        cas: item.cas(),
        datatype,
        key,
        value,
    }
    .encode(head, out);
    Ok(())
}

/// Returns the NRU field: the access frequency for consumers that know it, 0 for others.
fn nru(format: &MessageFormat, item: &Item) -> u8 {
    if format.hifi_mfu { item.frequency() } else { 0 }
}

/// Appends the marker of a snapshot whose last seqno for the consumer is `end`.
pub(super) fn marker(
    format: &MessageFormat,
    head: &DcpHeader,
    snapshot: &DcpSnapshot,
    end: Seqno,
    out: &mut Vec<u8>,
) {
    let is_disk = snapshot.kind == SnapshotKind::Disk;
    let mut flags = if is_disk {
        SnapshotFlags::DISK
    } else {
        SnapshotFlags::MEMORY
    };
    if snapshot.checkpoint {
        flags = flags.union(SnapshotFlags::CHECKPOINT);
    }
    if snapshot.repeats_keys {
        flags = flags.union(SnapshotFlags::MAY_HAVE_DUPLICATES);
    }
    let version = format.marker_version();
    // If nobody knows the visible seqno beforehand, a replica derives it.
    let unknown = if format.sync_writes { Seqno(0) } else { end };
    let visible = (version >= MarkerVersion::V2_0).then(|| VisibleMarker {
        max_visible: snapshot.max_visible.unwrap_or(unknown),
        high_completed: snapshot.high_completed.unwrap_or_default(),
        disk: (version >= MarkerVersion::V2_2 && is_disk).then(|| DiskMarker {
            purge: snapshot.purge.unwrap_or_default(),
            high_prepared: snapshot.high_prepared.unwrap_or_default(),
        }),
    });
    SnapshotMarker {
        start: snapshot.start,
        end,
        flags,
        visible,
    }
    .encode(head, out);
}
