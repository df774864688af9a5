//! Shared parts of the tests: a bucket's files in memory, items, and a consistency check of a file.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kedge_couchstore::kv::{CollectionStats, FileAudit, split_prepare};
use kedge_couchstore::{BodyForm, Options, Snapshot};
use kedge_disk::{Disk, SimDisk};
use kedge_storage::{FileRecordKind, Storage, StorageConfig, StorageError};
use kedge_types::{
    Cas, CollectionId, Datatype, DurabilityLevel, Expiry, RevSeqno, Seqno, VbId, VbUuid,
    decode_leb128,
};
use kedge_vbucket::{
    Aborted, Deletion, FailoverTable, FileChange, Item, ItemMeta, PersistedState, SnapshotKind,
    VbState, is_system_key,
};

pub(crate) const VB: VbId = VbId(0);

pub(crate) fn dir() -> &'static Path {
    Path::new("/data/bucket")
}

pub(crate) fn config(vbuckets: u16) -> StorageConfig {
    StorageConfig::new(vbuckets)
}

pub(crate) fn open_with(disk: &SimDisk, config: &StorageConfig) -> Result<Storage, StorageError> {
    Storage::open(Arc::new(disk.clone()), dir(), config)
}

pub(crate) fn open(disk: &SimDisk) -> Result<Storage, StorageError> {
    open_with(disk, &config(4))
}

/// The state of an active vBucket at a consistent point.
pub(crate) fn state(uuid: u64, high: u64) -> PersistedState {
    PersistedState {
        state: VbState::Active,
        failover: FailoverTable::new(VbUuid(uuid)),
        max_cas: Cas(high),
        snap_start: Seqno(high),
        snap_end: Seqno(high),
        snap_kind: SnapshotKind::Memory,
        visible: Seqno(high),
        prepared: Seqno(0),
        completed: Seqno(0),
        max_deleted_rev: RevSeqno(0),
        purge: Seqno(0),
        may_have_xattrs: false,
        catch_up: None,
    }
}

pub(crate) fn key(n: u64) -> Vec<u8> {
    format!("\0key-{n:05}").into_bytes()
}

pub(crate) fn meta(seqno: u64) -> ItemMeta {
    ItemMeta {
        cas: Cas(seqno << 16),
        seqno: Seqno(seqno),
        rev: RevSeqno(1),
        flags: 7,
        expiry: Expiry(0),
        datatype: Datatype::RAW,
        deleted: None,
        level: None,
    }
}

pub(crate) fn document(seqno: u64, key: &[u8], value: &[u8]) -> FileChange {
    FileChange::Document(Item::new(&meta(seqno), key, &[value]))
}

pub(crate) fn tombstone(seqno: u64, key: &[u8]) -> FileChange {
    let meta = ItemMeta {
        deleted: Some(Deletion::Explicit),
        expiry: Expiry(1_700_000_000),
        ..meta(seqno)
    };
    FileChange::Document(Item::new(&meta, key, &[]))
}

pub(crate) fn prepare(seqno: u64, key: &[u8], value: &[u8]) -> FileChange {
    let meta = ItemMeta {
        level: Some(DurabilityLevel::PersistToMajority),
        ..meta(seqno)
    };
    FileChange::Prepare(Item::new(&meta, key, &[value]))
}

pub(crate) fn abort(seqno: u64, key: &[u8], prepared: u64) -> FileChange {
    let meta = ItemMeta {
        deleted: Some(Deletion::Explicit),
        expiry: Expiry(1_700_000_000),
        ..meta(seqno)
    };
    FileChange::Abort(Box::new(Aborted {
        item: Item::new(&meta, key, &[]),
        prepared: Seqno(prepared),
    }))
}

/// A batch of documents with these seqnos under different keys.
pub(crate) fn documents(seqnos: RangeInclusive<u64>) -> Vec<FileChange> {
    seqnos
        .map(|seqno| document(seqno, &key(seqno), format!("value {seqno}").as_bytes()))
        .collect()
}

/// Keys and namespaces with their items.
pub(crate) type Contents = BTreeMap<(Vec<u8>, bool), Kept>;

/// An item, as the tests keep it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) meta: ItemMeta,
    pub(crate) value: Vec<u8>,
    pub(crate) kind: FileRecordKind,
}

pub(crate) fn keep(contents: &mut Contents, apply: &FileChange) {
    let item = apply.item();
    let place = (item.key().to_vec(), apply.is_committed_namespace());
    let kept = Kept {
        meta: item.meta(),
        value: item.value().to_vec(),
        kind: match apply {
            FileChange::Document(_) => FileRecordKind::Document,
            FileChange::Prepare(_) => FileRecordKind::Prepare,
            FileChange::Abort(aborted) => FileRecordKind::Abort {
                prepared: aborted.prepared,
            },
        },
    };
    contents.insert(place, kept);
}

/// Returns the contents of a vBucket's file from a scan; `None` if it has no file.
pub(crate) fn contents(storage: &Storage, vb: VbId) -> Result<Option<Contents>, StorageError> {
    let Some(scan) = storage.scan(vb, .., true)? else {
        return Ok(None);
    };
    let mut contents = Contents::new();
    let mut last = Seqno(0);
    for record in scan {
        let record = record?;
        assert!(record.meta().seqno > last, "in the order of seqnos");
        last = record.meta().seqno;
        let committed = record.kind() == FileRecordKind::Document;
        let kept = Kept {
            meta: *record.meta(),
            value: record.value().expect("with its value").to_vec(),
            kind: record.kind(),
        };
        let twice = contents.insert((record.key().to_vec(), committed), kept);
        assert!(twice.is_none(), "each key once");
    }
    Ok(Some(contents))
}

/// The path of the catalog.
pub(crate) fn catalog_path() -> PathBuf {
    dir().join("vbuckets.catalog")
}

/// Returns the names of all files of vBuckets, including remains.
pub(crate) fn names(disk: &dyn Disk) -> Vec<String> {
    let mut names = disk.list(dir()).expect("a directory");
    // The next start removes the remains of one that was cut off.
    names.retain(|name| !name.starts_with("vbuckets.catalog"));
    names
}

/// Returns the path of the only file of a vBucket.
pub(crate) fn path_of(disk: &dyn Disk, vb: VbId) -> Option<PathBuf> {
    path_in(disk, dir(), vb)
}

fn path_in(disk: &dyn Disk, dir: &Path, vb: VbId) -> Option<PathBuf> {
    let prefix = format!("{vb}.couch.");
    let names = disk.list(dir).expect("a directory");
    let mut names = names.into_iter().filter(|name| name.starts_with(&prefix));
    let name = names.next()?;
    assert_eq!(names.next(), None, "one file a vBucket");
    Some(dir.join(name))
}

/// Checks that all parts of a vBucket's file are consistent with each other.
pub(crate) fn audit(disk: &dyn Disk, vb: VbId) {
    audit_in(disk, dir(), vb);
}

/// Checks a file in another directory like [`audit`].
pub(crate) fn audit_in(disk: &dyn Disk, dir: &Path, vb: VbId) {
    let Some(path) = path_in(disk, dir, vb) else {
        return;
    };
    let snapshot = Snapshot::open(disk, &path, &Options::default()).expect("open");
    snapshot.check(&mut |_| {}).expect("sound");
    let mut audit = FileAudit::new(snapshot.header().update_seqno());
    for local in snapshot.locals().expect("a scan") {
        let (name, value) = local.expect("a local document");
        audit.local(&name, &value).expect("as its name says");
    }
    let scan = snapshot.scan_seqnos(..).expect("a scan");
    let mut disk_bytes = BTreeMap::from([(CollectionId::DEFAULT, 0)]);
    let mut prepare_bytes = 0;
    for document in scan.with_bodies(BodyForm::Plain) {
        let document = document.expect("a document");
        let entry = &document.entry;
        audit
            .document(entry, document.body.as_deref())
            .expect("sound");
        let bytes = entry.key().len() + entry.rev_meta().len() + entry.disk_bytes() as usize;
        let (_, key) = split_prepare(entry.key());
        if !is_system_key(entry.key()) {
            let (collection, _) = decode_leb128(key).expect("a prefix");
            *disk_bytes.entry(CollectionId(collection)).or_default() += bytes as u64;
        }
        if entry.key()[0] == 2 && !entry.is_deleted() {
            prepare_bytes += bytes as u64;
        }
    }
    assert!(audit.is_vbucket());
    assert_eq!(audit.disagreements(), []);
    assert_eq!(
        audit.state().expect("a state").on_disk_prepare_bytes,
        prepare_bytes
    );
    for (collection, disk_bytes) in disk_bytes {
        let name = CollectionStats::name(collection);
        let stated = snapshot.local(name.as_bytes()).expect("a look-up");
        let stated = stated.map(|it| CollectionStats::decode(&it).expect("statistics"));
        // The documents of a collection are dropped with it.
        if stated.is_some() || collection == CollectionId::DEFAULT {
            let stated = stated.and_then(|stats| stats.disk_bytes);
            assert_eq!(stated.unwrap_or(0), disk_bytes, "of {collection}");
        }
    }
}

/// Commits the documents of these seqnos, with the state of the last of them.
pub(crate) fn fill(storage: &Storage, vb: VbId, seqnos: RangeInclusive<u64>, now_ns: u64) {
    let state = state(1, *seqnos.end());
    storage
        .commit(vb, &documents(seqnos), &state, now_ns)
        .expect("commit");
}
