//! The encoding of the records of the commit log. `docs/reference/formats/records.md` describes the format.

use kedge_bucket_core::BucketError;
use kedge_log::{Batch, LogError};
use kedge_types::{Cas, Datatype, DurabilityLevel, Expiry, RevSeqno, Seqno, VbId, VbUuid};
use kedge_vbucket::{
    CatchUpPoint, Change, DcpSnapshot, Deletion, FailoverTable, Item, ItemMeta, NewBranch,
    SnapshotKind, SystemEvent, VbState,
};

const KIND_DOCUMENT: u8 = 1;
const KIND_PREPARE: u8 = 2;
const KIND_COMMIT: u8 = 3;
const KIND_ABORT: u8 = 4;
const KIND_STATE: u8 = 5;
const KIND_RESET: u8 = 6;
/// The kind of the last record of a clean shutdown.
pub(crate) const KIND_CLEAN: u8 = 7;
const KIND_ROLLBACK: u8 = 8;
const KIND_DELETE: u8 = 9;
const KIND_SNAPSHOT: u8 = 10;
const KIND_ADVANCE: u8 = 11;
const KIND_SYSTEM: u8 = 12;
/// A reset or rollback after which the vBucket must reach a seqno again.
const KIND_LOSING_RESET: u8 = 13;
const KIND_LOSING_ROLLBACK: u8 = 14;

/// The size of flags, start, end, maximum visible, high completed, high prepared and purge seqno, in bytes.
const SNAPSHOT_BYTES: usize = 49;
const SNAPSHOT_DISK: u8 = 1;
const SNAPSHOT_CHECKPOINT: u8 = 2;
/// The first of the flags that state which optional seqnos a snapshot has, in their order.
const SNAPSHOT_KNOWN: u8 = 4;
/// The size of seqno, CAS, revision, flags, expiry, datatype, state, level and key length, in bytes.
const META_BYTES: usize = 36;
const STATE_DELETED: u8 = 1;
const STATE_EXPIRED: u8 = 2;

/// Adds a change to a batch.
///
/// # Errors
/// [`LogError::RecordTooLarge`], which no document within the limits causes.
pub(crate) fn push(batch: &mut Batch, vb: VbId, change: &Change) -> Result<(), LogError> {
    match change {
        Change::Document(item) => push_item(batch, KIND_DOCUMENT, vb, item),
        Change::Prepare(item) => push_item(batch, KIND_PREPARE, vb, item),
        Change::System(item) => push_item(batch, KIND_SYSTEM, vb, item),
        Change::Commit { item, prepared } => {
            push_completion(batch, KIND_COMMIT, vb, item, *prepared)
        }
        Change::Abort { item, prepared } => push_completion(batch, KIND_ABORT, vb, item, *prepared),
        Change::State(table, state) => {
            batch.push(KIND_STATE, vb, &[&[*state as u8], &table_bytes(table)])
        }
        Change::Reset(branch, state) => {
            let kind = kind_of(branch, KIND_RESET, KIND_LOSING_RESET);
            batch.push(kind, vb, &[&[*state as u8], &branch_bytes(branch)])
        }
        Change::Rollback { to, branch } => {
            let kind = kind_of(branch, KIND_ROLLBACK, KIND_LOSING_ROLLBACK);
            let to = to.get().to_le_bytes();
            batch.push(kind, vb, &[&to, &branch_bytes(branch)])
        }
        Change::Delete => batch.push(KIND_DELETE, vb, &[]),
        Change::Snapshot(snapshot) => batch.push(KIND_SNAPSHOT, vb, &[&snapshot_bytes(snapshot)]),
        Change::Advance(seqno) => batch.push(KIND_ADVANCE, vb, &[&seqno.get().to_le_bytes()]),
    }
}

fn push_item(batch: &mut Batch, kind: u8, vb: VbId, item: &Item) -> Result<(), LogError> {
    batch.push(kind, vb, &[&meta_bytes(item), item.key(), item.value()])
}

/// Adds a commit or abort, without the value, which the prepare's record has.
fn push_completion(
    batch: &mut Batch,
    kind: u8,
    vb: VbId,
    item: &Item,
    prepared: Seqno,
) -> Result<(), LogError> {
    batch.push(
        kind,
        vb,
        &[&prepared.get().to_le_bytes(), &meta_bytes(item), item.key()],
    )
}

fn meta_bytes(item: &Item) -> [u8; META_BYTES] {
    let meta = item.meta();
    let state = match meta.deleted {
        None => 0,
        Some(Deletion::Explicit) => STATE_DELETED,
        Some(Deletion::Expired) => STATE_DELETED | STATE_EXPIRED,
    };
    let mut bytes = [0; META_BYTES];
    bytes[0..8].copy_from_slice(&meta.seqno.get().to_le_bytes());
    bytes[8..16].copy_from_slice(&meta.cas.get().to_le_bytes());
    bytes[16..24].copy_from_slice(&meta.rev.get().to_le_bytes());
    bytes[24..28].copy_from_slice(&meta.flags.to_le_bytes());
    bytes[28..32].copy_from_slice(&meta.expiry.0.to_le_bytes());
    bytes[32] = meta.datatype.bits();
    bytes[33] = state;
    bytes[34] = meta.level.map_or(0, |level| level as u8);
    bytes[35] = item.key().len() as u8;
    bytes
}

fn snapshot_bytes(snapshot: &DcpSnapshot) -> [u8; SNAPSHOT_BYTES] {
    let DcpSnapshot {
        start,
        end,
        kind,
        max_visible,
        high_completed,
        high_prepared,
        purge,
        checkpoint,
        repeats_keys: _,
    } = *snapshot;
    let mut bytes = [0; SNAPSHOT_BYTES];
    let mut flags = match kind {
        SnapshotKind::Memory => 0,
        SnapshotKind::Disk => SNAPSHOT_DISK,
    };
    if checkpoint {
        flags |= SNAPSHOT_CHECKPOINT;
    }
    let known = [max_visible, high_completed, high_prepared, purge];
    let seqnos = [Some(start), Some(end)].into_iter().chain(known);
    for (at, seqno) in seqnos.enumerate() {
        let seqno = seqno.unwrap_or_default().get();
        bytes[1 + at * 8..9 + at * 8].copy_from_slice(&seqno.to_le_bytes());
    }
    for (at, seqno) in known.into_iter().enumerate() {
        flags |= u8::from(seqno.is_some()) * (SNAPSHOT_KNOWN << at);
    }
    bytes[0] = flags;
    bytes
}

fn table_bytes(table: &FailoverTable) -> Vec<u8> {
    table
        .entries()
        .iter()
        .flat_map(|(uuid, seqno)| [uuid.get().to_le_bytes(), seqno.get().to_le_bytes()])
        .flatten()
        .collect()
}

/// Returns the kind of the record in which a branch begins.
fn kind_of(branch: &NewBranch, plain: u8, losing: u8) -> u8 {
    match branch.catch_up {
        None => plain,
        Some(_) => losing,
    }
}

/// Returns the point that the vBucket must reach again, if there is one, and the failover table.
fn branch_bytes(branch: &NewBranch) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(point) = &branch.catch_up {
        let entries = point.failover.entries().len() as u64;
        bytes.extend(point.seqno.get().to_le_bytes());
        bytes.extend(entries.to_le_bytes());
        bytes.extend(table_bytes(&point.failover));
    }
    bytes.extend(table_bytes(&branch.failover));
    bytes
}

/// Returns the seqno of a record that has one, without parsing the rest, or `None` for other records.
pub(crate) fn seqno(kind: u8, payload: &[u8]) -> Option<Seqno> {
    let meta = match kind {
        KIND_DOCUMENT | KIND_PREPARE | KIND_SYSTEM | KIND_ADVANCE => payload,
        KIND_COMMIT | KIND_ABORT => payload.get(8..)?,
        _ => return None,
    };
    let seqno = meta.first_chunk()?;
    Some(Seqno(u64::from_le_bytes(*seqno)))
}

/// Parses a record. Returns `None` for the record of a clean shutdown.
///
/// # Errors
/// [`BucketError::Record`] if the payload is not in the format that [`push`] writes.
pub(crate) fn parse(kind: u8, vb: VbId, payload: &[u8]) -> Result<Option<Change>, BucketError> {
    let invalid = |why| BucketError::Record { vb, why };
    let change = match kind {
        KIND_DOCUMENT => Change::Document(parse_item(payload).map_err(invalid)?),
        KIND_PREPARE => Change::Prepare(parse_item(payload).map_err(invalid)?),
        KIND_SYSTEM => {
            let item = parse_item(payload).map_err(invalid)?;
            // A new item is known not to be in a hash table.
            let event = SystemEvent::of_item(&item);
            let event = event.ok_or_else(|| invalid("it is not a collection event"))?;
            Change::System(event.item(item.cas(), item.seqno()))
        }
        KIND_COMMIT => {
            let (prepared, item) = parse_completion(payload).map_err(invalid)?;
            Change::Commit { item, prepared }
        }
        KIND_ABORT => {
            let (prepared, item) = parse_completion(payload).map_err(invalid)?;
            Change::Abort { item, prepared }
        }
        KIND_STATE => {
            let (state, table) = parse_state(payload).map_err(invalid)?;
            Change::State(Box::new(table), state)
        }
        KIND_RESET | KIND_LOSING_RESET => {
            let (state, rest) = split_state(payload).map_err(invalid)?;
            let branch = parse_branch(rest, kind == KIND_LOSING_RESET).map_err(invalid)?;
            Change::Reset(Box::new(branch), state)
        }
        KIND_DELETE if payload.is_empty() => Change::Delete,
        KIND_DELETE => return Err(invalid("its length is not that of a deletion")),
        KIND_ROLLBACK | KIND_LOSING_ROLLBACK => {
            let (to, rest) = payload
                .split_first_chunk()
                .ok_or("it is too short for the seqno")
                .map_err(invalid)?;
            let branch = parse_branch(rest, kind == KIND_LOSING_ROLLBACK).map_err(invalid)?;
            Change::Rollback {
                to: Seqno(u64::from_le_bytes(*to)),
                branch: Box::new(branch),
            }
        }
        KIND_SNAPSHOT => Change::Snapshot(Box::new(parse_snapshot(payload).map_err(invalid)?)),
        KIND_ADVANCE => {
            let seqno = payload
                .try_into()
                .map_err(|_| invalid("its length is not that of a seqno"))?;
            Change::Advance(Seqno(u64::from_le_bytes(seqno)))
        }
        KIND_CLEAN => return Ok(None),
        _ => {
            return Err(invalid(
                "its kind is unknown; a newer version may have written it",
            ));
        }
    };
    Ok(Some(change))
}

fn parse_completion(payload: &[u8]) -> Result<(Seqno, Item), &'static str> {
    let (prepared, rest) = payload
        .split_first_chunk()
        .ok_or("it is too short for the prepare's seqno")?;
    Ok((Seqno(u64::from_le_bytes(*prepared)), parse_item(rest)?))
}

fn parse_item(payload: &[u8]) -> Result<Item, &'static str> {
    let (meta, rest) = payload
        .split_first_chunk::<META_BYTES>()
        .ok_or("it is too short for metadata")?;
    let long = |at: usize| u64::from_le_bytes(meta[at..at + 8].try_into().expect("8 bytes"));
    let word = |at: usize| u32::from_le_bytes(meta[at..at + 4].try_into().expect("4 bytes"));
    let deleted = match meta[33] {
        0 => None,
        STATE_DELETED => Some(Deletion::Explicit),
        3 => Some(Deletion::Expired),
        _ => return Err("its state is unknown"),
    };
    if meta[34] > 3 {
        return Err("its durability level is unknown");
    }
    let (key, value) = rest
        .split_at_checked(usize::from(meta[35]))
        .ok_or("its key is truncated")?;
    let meta = ItemMeta {
        seqno: Seqno(long(0)),
        cas: Cas(long(8)),
        rev: RevSeqno(long(16)),
        flags: word(24),
        expiry: Expiry(word(28)),
        datatype: Datatype::from_bits(meta[32]).ok_or("its datatype is unknown")?,
        deleted,
        level: DurabilityLevel::from_wire(meta[34]),
    };
    Ok(Item::new(&meta, key, &[value]))
}

fn parse_snapshot(payload: &[u8]) -> Result<DcpSnapshot, &'static str> {
    let bytes: &[u8; SNAPSHOT_BYTES] = payload
        .try_into()
        .map_err(|_| "its length is not that of a snapshot")?;
    let flags = bytes[0];
    if flags >= SNAPSHOT_KNOWN << 4 {
        return Err("its flags are unknown");
    }
    let seqno = |at: usize| {
        let bytes = bytes[1 + at * 8..9 + at * 8].try_into();
        Seqno(u64::from_le_bytes(bytes.expect("8 bytes")))
    };
    let known = |at: usize| (flags & (SNAPSHOT_KNOWN << at) != 0).then(|| seqno(2 + at));
    let kind = match flags & SNAPSHOT_DISK {
        0 => SnapshotKind::Memory,
        _ => SnapshotKind::Disk,
    };
    Ok(DcpSnapshot {
        start: seqno(0),
        end: seqno(1),
        kind,
        max_visible: known(0),
        high_completed: known(1),
        high_prepared: known(2),
        purge: known(3),
        checkpoint: flags & SNAPSHOT_CHECKPOINT != 0,
        repeats_keys: false,
    })
}

fn parse_state(payload: &[u8]) -> Result<(VbState, FailoverTable), &'static str> {
    let (state, table) = split_state(payload)?;
    Ok((state, parse_table(table)?))
}

fn split_state(payload: &[u8]) -> Result<(VbState, &[u8]), &'static str> {
    let (state, rest) = payload
        .split_first()
        .ok_or("it is too short for the state")?;
    let state = VbState::from_number(*state).ok_or("its state is unknown")?;
    Ok((state, rest))
}

fn parse_branch(payload: &[u8], has_point: bool) -> Result<NewBranch, &'static str> {
    if !has_point {
        return Ok(parse_table(payload)?.into());
    }
    let (head, rest) = payload
        .split_first_chunk::<16>()
        .ok_or("it is too short for the seqno to reach")?;
    let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
    let entries = usize::try_from(number(8)).unwrap_or(usize::MAX);
    let (table, rest) = rest
        .split_at_checked(entries.saturating_mul(16))
        .ok_or("the failover table of the seqno to reach is truncated")?;
    Ok(NewBranch {
        catch_up: Some(CatchUpPoint::new(Seqno(number(0)), parse_table(table)?)),
        failover: parse_table(rest)?,
    })
}

fn parse_table(payload: &[u8]) -> Result<FailoverTable, &'static str> {
    let (entries, rest) = payload.as_chunks::<16>();
    if !rest.is_empty() {
        return Err("its failover table is truncated");
    }
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    let entries = entries
        .iter()
        .map(|entry| (VbUuid(number(&entry[..8])), Seqno(number(&entry[8..]))));
    FailoverTable::from_entries(entries.collect())
        .ok_or("its failover table is empty or out of order")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kedge_types::{CollectionId, ManifestUid, ScopeId};
    use kedge_vbucket::SystemEventKind;
    use proptest::prelude::*;

    fn item(meta: &ItemMeta, value: &[u8]) -> Item {
        Item::new(meta, b"\x00key", &[value])
    }

    fn event() -> SystemEvent {
        SystemEvent {
            kind: SystemEventKind::CollectionCreated,
            uid: ManifestUid(7),
            scope: ScopeId(8),
            collection: CollectionId(9),
            name: "fruit".to_owned(),
            max_ttl: Some(10),
            history: true,
            start: Seqno(0),
        }
    }

    /// Returns the kind and payload that the log returns for a change.
    fn payload(change: &Change) -> (u8, Vec<u8>) {
        let parts: Vec<Vec<u8>> = match change {
            Change::Document(item) | Change::Prepare(item) | Change::System(item) => {
                vec![
                    meta_bytes(item).to_vec(),
                    item.key().to_vec(),
                    item.value().to_vec(),
                ]
            }
            Change::Commit { item, prepared } | Change::Abort { item, prepared } => {
                vec![
                    prepared.get().to_le_bytes().to_vec(),
                    meta_bytes(item).to_vec(),
                    item.key().to_vec(),
                ]
            }
            Change::State(table, state) => vec![vec![*state as u8], table_bytes(table)],
            Change::Reset(branch, state) => vec![vec![*state as u8], branch_bytes(branch)],
            Change::Delete => Vec::new(),
            Change::Snapshot(snapshot) => vec![snapshot_bytes(snapshot).to_vec()],
            Change::Advance(seqno) => vec![seqno.get().to_le_bytes().to_vec()],
            Change::Rollback { to, branch } => {
                vec![to.get().to_le_bytes().to_vec(), branch_bytes(branch)]
            }
        };
        let kind = match change {
            Change::Document(_) => KIND_DOCUMENT,
            Change::Prepare(_) => KIND_PREPARE,
            Change::System(_) => KIND_SYSTEM,
            Change::Commit { .. } => KIND_COMMIT,
            Change::Abort { .. } => KIND_ABORT,
            Change::State(..) => KIND_STATE,
            Change::Reset(branch, _) => kind_of(branch, KIND_RESET, KIND_LOSING_RESET),
            Change::Delete => KIND_DELETE,
            Change::Rollback { branch, .. } => kind_of(branch, KIND_ROLLBACK, KIND_LOSING_ROLLBACK),
            Change::Snapshot(_) => KIND_SNAPSHOT,
            Change::Advance(_) => KIND_ADVANCE,
        };
        (kind, parts.concat())
    }

    #[test]
    fn metadata_bytes_match_the_documented_format() {
        let meta = ItemMeta {
            seqno: Seqno(1),
            cas: Cas(2),
            rev: RevSeqno(3),
            flags: 4,
            expiry: Expiry(5),
            datatype: Datatype::JSON,
            deleted: Some(Deletion::Expired),
            level: Some(DurabilityLevel::PersistToMajority),
        };
        let mut expected = [0; META_BYTES];
        for (at, byte) in [
            (0, 1),
            (8, 2),
            (16, 3),
            (24, 4),
            (28, 5),
            (32, 1),
            (33, 3),
            (34, 3),
            (35, 4),
        ] {
            expected[at] = byte;
        }
        assert_eq!(meta_bytes(&item(&meta, b"")), expected);
    }

    /// Returns whether the prefix of length `cut` is a valid record with a shorter failover table.
    fn is_shorter_table(kind: u8, cut: usize) -> bool {
        match kind {
            KIND_STATE | KIND_RESET => cut >= 17 && cut % 16 == 1,
            KIND_ROLLBACK => cut >= 24 && cut % 16 == 8,
            _ => false,
        }
    }

    #[test]
    fn records_of_every_kind_round_trip() {
        let level = Some(DurabilityLevel::Majority);
        let meta = ItemMeta {
            seqno: Seqno(9),
            cas: Cas(8),
            level,
            ..ItemMeta::default()
        };
        let table = Box::new(FailoverTable::new(VbUuid(7)));
        let plain = NewBranch::from((*table).clone());
        let mut history = FailoverTable::new(VbUuid(5));
        history.begin(VbUuid(6), Seqno(4));
        let losing = NewBranch {
            catch_up: Some(CatchUpPoint::new(Seqno(9), history)),
            ..plain.clone()
        };
        for change in [
            Change::Document(item(&meta, b"value")),
            Change::Prepare(item(&meta, b"value")),
            Change::Commit {
                item: item(&meta, b""),
                prepared: Seqno(3),
            },
            Change::Abort {
                item: item(&meta, b""),
                prepared: Seqno(3),
            },
            Change::System(event().item(Cas(4), Seqno(5))),
            Change::State(table, VbState::Replica),
            Change::Reset(Box::new(plain.clone()), VbState::Dead),
            Change::Reset(Box::new(losing.clone()), VbState::Replica),
            Change::Delete,
            Change::Rollback {
                to: Seqno(6),
                branch: Box::new(plain),
            },
            Change::Rollback {
                to: Seqno(6),
                branch: Box::new(losing),
            },
            Change::Snapshot(Box::new(DcpSnapshot {
                max_visible: Some(Seqno(0)),
                high_prepared: Some(Seqno(5)),
                checkpoint: true,
                ..DcpSnapshot::new(SnapshotKind::Memory, Seqno(3), Seqno(9))
            })),
            Change::Snapshot(Box::new(DcpSnapshot {
                high_completed: Some(Seqno(4)),
                purge: Some(Seqno(2)),
                ..DcpSnapshot::new(SnapshotKind::Disk, Seqno(0), Seqno(7))
            })),
            Change::Advance(Seqno(8)),
        ] {
            let (kind, bytes) = payload(&change);
            let back = parse(kind, VbId(0), &bytes).unwrap().unwrap();
            assert_eq!(format!("{back:?}"), format!("{change:?}"));
            for cut in 0..bytes.len().min(META_BYTES) {
                assert!(
                    parse(kind, VbId(5), &bytes[..cut]).is_err() || is_shorter_table(kind, cut),
                    "{kind} cut at {cut}"
                );
            }
        }
        assert!(parse(KIND_CLEAN, VbId(0), b"").unwrap().is_none());
        assert!(parse(KIND_DELETE, VbId(0), b"x").is_err());
        let no_state = [[0].as_slice(), &[0; 16]].concat();
        assert!(parse(KIND_STATE, VbId(0), &no_state).is_err());
        let unknown = parse(99, VbId(5), b"").unwrap_err().to_string();
        assert!(
            unknown.contains("vBucket 5") && unknown.contains("newer version"),
            "{unknown}"
        );
    }

    proptest! {
        #[test]
        fn parse_accepts_arbitrary_bytes_without_panic(
            kind in 0u8..16,
            bytes in proptest::collection::vec(any::<u8>(), 0..120),
        ) {
            let _ = parse(kind, VbId(0), &bytes);
        }
    }
}
