//! Helpers of the tests.

use kedge_types::{
    Cas, CollectionId, Datatype, DocKey, Durability, DurabilityLevel, Expiry, Now, RevSeqno, Seqno,
    Status, VbId, VbUuid,
};
use kedge_vbucket::{
    Change, CompletedCommand, Completion, Cookie, DcpSnapshot, FailoverTable, Item, ItemMeta, Meta,
    MinRatio, Mutated, NewValue, NodeName, PersistenceMode, RandomState, Received, SnapshotKind,
    StateChange, StepOutcome, StepWrite, StoreMode, SystemEvent, Topology, VBucket, VbSetup,
    VbState,
};

/// Returns the moment `secs` seconds after an arbitrary start.
pub(crate) fn at(secs: u64) -> Now {
    Now {
        unix_ns: (1_700_000_000 + secs) * 1_000_000_000,
        mono_ns: secs * 1_000_000_000,
    }
}

pub(crate) fn vbucket() -> VBucket {
    vbucket_with(PersistenceMode::LogThenFile)
}

pub(crate) fn vbucket_with(persistence: PersistenceMode) -> VBucket {
    VBucket::new(setup(persistence))
}

pub(crate) fn setup(persistence: PersistenceMode) -> VbSetup {
    VbSetup {
        id: VbId(7),
        uuid: VbUuid(0xabc),
        shards: 4,
        hasher: RandomState::default(),
        persistence,
        topology: Some(Topology::alone()),
    }
}

pub(crate) fn key(text: &str) -> DocKey {
    DocKey::new(CollectionId::DEFAULT, text.as_bytes()).unwrap()
}

pub(crate) fn write(key: &DocKey) -> StepWrite<'_> {
    StepWrite {
        key,
        cas: Cas(0),
        durability: None,
        new_cas: Cas(0),
        preserve_ttl: false,
        cookie: Cookie(0),
        prebuilt: None,
    }
}

pub(crate) fn durable(key: &DocKey, level: DurabilityLevel, cookie: u64) -> StepWrite<'_> {
    let durability = Some(Durability {
        level,
        timeout_ms: Some(2_000),
    });
    StepWrite {
        durability,
        cookie: Cookie(cookie),
        ..write(key)
    }
}

pub(crate) fn value(bytes: &[u8]) -> NewValue<'_> {
    NewValue::check(bytes, Datatype::RAW, MinRatio::NEVER).unwrap()
}

pub(crate) fn store(
    vb: &mut VBucket,
    now: Now,
    write: &StepWrite<'_>,
    mode: StoreMode,
    bytes: &[u8],
) -> Result<StepOutcome<Mutated>, Status> {
    vb.at(now)
        .store(write, mode, &value(bytes), 0, Expiry::NEVER)
}

pub(crate) fn set(vb: &mut VBucket, now: Now, name: &str, bytes: &[u8]) -> Mutated {
    let key = key(name);
    done(store(vb, now, &write(&key), StoreMode::Set, bytes).unwrap())
}

/// Starts a SyncWrite that must be persisted.
pub(crate) fn persist(vb: &mut VBucket, now: Now, name: &str, bytes: &[u8], cookie: u64) {
    let key = key(name);
    let write = durable(&key, DurabilityLevel::PersistToMajority, cookie);
    store(vb, now, &write, StoreMode::Set, bytes).unwrap();
}

/// Returns a level with or without persistence.
pub(crate) fn level(persist: bool) -> DurabilityLevel {
    if persist {
        DurabilityLevel::PersistToMajority
    } else {
        DurabilityLevel::Majority
    }
}

pub(crate) fn done<T>(outcome: StepOutcome<T>) -> T {
    match outcome {
        StepOutcome::Done(done) => done,
        StepOutcome::Parked => panic!("parked"),
        StepOutcome::Fetch => panic!("on disk"),
    }
}

pub(crate) fn get(vb: &mut VBucket, now: Now, name: &str) -> Result<Vec<u8>, Status> {
    let found = vb
        .at(now)
        .get(&key(name), |document| document.item.value().to_vec())?;
    Ok(done(found))
}

pub(crate) fn meta(vb: &mut VBucket, now: Now, key: &DocKey) -> Meta {
    done(vb.at(now).get_meta(key).unwrap())
}

pub(crate) fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

/// Creates chains of nodes with names of one letter; `-` is a missing node.
pub(crate) fn topology(chains: &[&str]) -> Topology {
    let place = |letter: char| NodeName::new(&letter.to_string()).filter(|_| letter != '-');
    let chains = chains
        .iter()
        .map(|chain| chain.chars().map(place).collect());
    Topology::new(chains.collect()).unwrap()
}

/// Creates a vBucket without a role.
pub(crate) fn without_role(persistence: PersistenceMode) -> VBucket {
    VBucket::new(VbSetup {
        topology: None,
        ..setup(persistence)
    })
}

/// Creates an active vBucket with these chains. Without chains, the role stays unset.
pub(crate) fn active(chains: &[&str]) -> VBucket {
    let mut vb = without_role(PersistenceMode::LogThenFile);
    if !chains.is_empty() {
        vb.set_state(StateChange {
            topology: Some(topology(chains)),
            ..StateChange::to(VbState::Active, VbUuid(0xabc))
        });
    }
    vb
}

/// Creates a replica with an open stream.
pub(crate) fn replica() -> VBucket {
    let mut vb = active(&[]);
    vb.set_state(StateChange::to(VbState::Replica, VbUuid(0xdef)));
    vb.begin_stream(FailoverTable::new(VbUuid(0xabc))).unwrap();
    vb
}

pub(crate) fn memory(start: u64, end: u64) -> DcpSnapshot {
    DcpSnapshot::new(SnapshotKind::Memory, Seqno(start), Seqno(end))
}

pub(crate) fn disk(start: u64, end: u64) -> DcpSnapshot {
    DcpSnapshot::new(SnapshotKind::Disk, Seqno(start), Seqno(end))
}

/// Creates an item of another node.
pub(crate) fn item(name: &str, seqno: u64, value: &[u8], level: Option<DurabilityLevel>) -> Item {
    let meta = ItemMeta {
        cas: Cas(seqno << 16),
        seqno: Seqno(seqno),
        rev: RevSeqno(1),
        level,
        ..ItemMeta::default()
    };
    Item::new(&meta, key(name).as_bytes(), &[value])
}

pub(crate) fn document(name: &str, seqno: u64) -> Received {
    Received::Document(item(name, seqno, seqno.to_string().as_bytes(), None))
}

pub(crate) fn prepared(name: &str, seqno: u64, level: DurabilityLevel) -> Received {
    Received::Prepare(item(name, seqno, seqno.to_string().as_bytes(), Some(level)))
}

pub(crate) fn commit(name: &str, prepared: u64, seqno: u64) -> Received {
    Received::Commit {
        key: key(name).as_bytes().into(),
        prepared: Seqno(prepared),
        seqno: Seqno(seqno),
    }
}

pub(crate) fn abort(name: &str, prepared: u64, seqno: u64) -> Received {
    Received::Abort {
        key: key(name).as_bytes().into(),
        prepared: Seqno(prepared),
        seqno: Seqno(seqno),
    }
}

/// Converts a change into the form in which it is replicated.
pub(crate) fn sent(change: &Change) -> Option<Received> {
    Some(match change {
        Change::Document(item) => Received::Document(item.clone()),
        Change::Prepare(item) => Received::Prepare(item.clone()),
        Change::Commit { item, prepared } => Received::Commit {
            key: item.key().into(),
            prepared: *prepared,
            seqno: item.seqno(),
        },
        Change::Abort { item, prepared } => Received::Abort {
            key: item.key().into(),
            prepared: *prepared,
            seqno: item.seqno(),
        },
        Change::System(item) => Received::System {
            event: SystemEvent::of_item(item).unwrap(),
            seqno: item.seqno(),
        },
        Change::Advance(seqno) => Received::Advance(*seqno),
        _ => return None,
    })
}

/// Logs all queued changes and returns them.
pub(crate) fn log_all(vb: &mut VBucket) -> Vec<Change> {
    let mut changes = Vec::new();
    let to = vb.changes().for_log(usize::MAX, usize::MAX, &mut changes);
    vb.on_logged(to);
    changes
}

pub(crate) fn results(vb: &mut VBucket) -> Vec<(u64, Result<Mutated, Status>)> {
    let mut all: Vec<CompletedCommand> = Vec::new();
    all.extend(vb.take_effects().unwrap_or_default().completions);
    all.into_iter()
        .map(|done| match done.completion {
            Completion::SyncWrite { result, .. } => (done.cookie.0, result),
            other => panic!("{other:?}"),
        })
        .collect()
}
