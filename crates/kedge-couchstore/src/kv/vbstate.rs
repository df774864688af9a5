//! `_local/vbstate`: the state of a vBucket on its node and its progress. Couchstore file format, section 3.4.
//!
//! The format is JSON with numbers that are mostly decimal strings. Invariants:
//! * All fields are written each time, in the order of their names, like in Couchbase.
//! * An unknown field is dropped: its writer would write it anew, and the next change may make its value wrong.

use super::KvError;
use kedge_types::{Cas, Seqno, VbUuid};
use serde::{Deserialize, Serialize};

/// Version of new documents.
const VERSION: u32 = 4;

/// The state of a vBucket. Its high seqno and purge seqno are in the header of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VbStateDocument {
    /// The state of the vBucket on its node.
    pub state: VbStateKind,
    /// The highest seqno of a tombstone.
    pub max_deleted_seqno: Seqno,
    /// Start of the snapshot that the last flush belongs to.
    pub snap_start: Seqno,
    /// End of that snapshot: until the high seqno reaches it, the vBucket is between two consistent points.
    pub snap_end: Seqno,
    /// The highest CAS; 0 if it is unknown.
    pub max_cas: Cas,
    /// `true` if the document had the highest CAS, which is missing in those of old releases. It is always written.
    pub has_max_cas: bool,
    /// The seqno from which CAS values are times; `None` if it is unknown.
    pub hlc_epoch: Option<Seqno>,
    /// `true` if a document may have extended attributes.
    pub might_contain_xattrs: bool,
    /// `true` if keys have a collection id. Of a file without, nothing else can be read.
    pub namespaces_supported: bool,
    /// The version of the document that was read. The current version is always written.
    pub version: u32,
    /// The highest prepare that is committed or aborted.
    pub completed_seqno: Seqno,
    /// The highest prepare in the file.
    pub prepared_seqno: Seqno,
    /// The seqno up to which prepares were acknowledged.
    pub high_prepared_seqno: Seqno,
    /// The highest seqno that clients may see.
    pub max_visible_seqno: Seqno,
    /// Number of prepares in the file, without aborts.
    pub on_disk_prepares: u64,
    /// Size of their bodies, keys and metadata, in bytes.
    pub on_disk_prepare_bytes: u64,
    /// The kind of checkpoint of the last flush.
    pub checkpoint: CheckpointKind,
    /// The program that wrote it, as free text.
    pub build: String,
    /// The branches of the vBucket's history, newest first. Old files have none.
    pub failover_table: Option<Vec<FailoverEntry>>,
    /// The nodes that have to acknowledge SyncWrites, a list per chain; `None` for a node that is currently missing.
    pub replication_topology: Option<Vec<Vec<Option<String>>>>,
    /// The point that the vBucket must reach again since a rollback. Only Kedge writes it.
    pub catch_up: Option<CatchUpEntry>,
    /// The UUID of the reset that made place for this file, if it is a copy of another node's. Only Kedge writes it.
    pub installed: Option<VbUuid>,
}

/// The state of a vBucket on its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VbStateKind {
    /// Accepts reads and writes.
    Active,
    /// Follows an active on another node.
    Replica,
    /// About to become active.
    Pending,
    /// Serves no requests.
    Dead,
}

/// The kind of checkpoint that a flush wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum CheckpointKind {
    /// Changes in their original order.
    #[default]
    Memory,
    /// A snapshot of another node's disk.
    Disk,
    /// The first snapshot of a disk, which started from nothing.
    InitialDisk,
}

/// A branch of a vBucket's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailoverEntry {
    /// The UUID of the branch.
    #[serde(rename = "id", with = "uuid")]
    pub uuid: VbUuid,
    /// The seqno that it starts at.
    #[serde(rename = "seq", with = "seq")]
    pub start: Seqno,
}

/// The point that a vBucket must reach again since a rollback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatchUpEntry {
    /// The branches of the history that the seqno belongs to, newest first.
    pub failover_table: Vec<FailoverEntry>,
    /// The last seqno that may have been acknowledged.
    #[serde(with = "seq")]
    pub seqno: Seqno,
}

/// The relation of a snapshot to the file that contains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotRange {
    /// The snapshot is valid.
    Sound,
    /// The snapshot was invalid and has been repaired, because an active creates its snapshots itself.
    Repaired,
    /// The snapshot is invalid, and the contents of the vBucket cannot be trusted.
    Unusable,
}

/// The JSON document, with fields in the order of their names.
#[derive(Serialize, Deserialize)]
struct VbStateJson {
    #[serde(default)]
    build: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    catch_up: Option<CatchUpEntry>,
    #[serde(default)]
    checkpoint_type: CheckpointKind,
    #[serde(default, with = "decimal")]
    completed_seqno: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failover_table: Option<Vec<FailoverEntry>>,
    #[serde(default, with = "decimal")]
    high_prepared_seqno: u64,
    #[serde(default = "no_epoch", with = "decimal")]
    hlc_epoch: i64,
    #[serde(
        default,
        with = "decimal_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    installed: Option<u64>,
    #[serde(default, with = "decimal_or_none")]
    max_cas: Option<u64>,
    #[serde(with = "decimal")]
    max_deleted_seqno: u64,
    #[serde(default, with = "decimal_or_none")]
    max_visible_seqno: Option<u64>,
    #[serde(default)]
    might_contain_xattrs: bool,
    #[serde(default)]
    namespaces_supported: bool,
    #[serde(flatten)]
    on_disk: OnDiskPreparesJson,
    #[serde(default, with = "decimal")]
    prepared_seqno: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replication_topology: Option<Vec<Vec<Option<String>>>>,
    #[serde(with = "decimal")]
    snap_end: u64,
    #[serde(with = "decimal")]
    snap_start: u64,
    state: VbStateKind,
    #[serde(default = "first_version")]
    version: u32,
}

/// The fields about prepares in the file.
#[derive(Serialize, Deserialize)]
struct OnDiskPreparesJson {
    #[serde(default, with = "decimal")]
    on_disk_prepare_bytes: u64,
    #[serde(default, with = "decimal")]
    on_disk_prepares: u64,
}

impl VbStateDocument {
    /// Creates the state of a vBucket without history.
    #[must_use]
    pub fn new(state: VbStateKind) -> Self {
        Self {
            state,
            max_deleted_seqno: Seqno(0),
            snap_start: Seqno(0),
            snap_end: Seqno(0),
            max_cas: Cas(0),
            has_max_cas: true,
            hlc_epoch: None,
            might_contain_xattrs: false,
            namespaces_supported: true,
            version: VERSION,
            completed_seqno: Seqno(0),
            prepared_seqno: Seqno(0),
            high_prepared_seqno: Seqno(0),
            max_visible_seqno: Seqno(0),
            on_disk_prepares: 0,
            on_disk_prepare_bytes: 0,
            checkpoint: CheckpointKind::Memory,
            build: String::new(),
            failover_table: None,
            replication_topology: None,
            catch_up: None,
            installed: None,
        }
    }

    /// Decodes the local document of a file whose header has `high_seqno` as its update seqno.
    ///
    /// # Errors
    /// [`KvError`] if it is not JSON, lacks a required field, or has a field of the wrong type or out of range.
    pub fn decode(json: &[u8], high_seqno: Seqno) -> Result<Self, KvError> {
        let json: VbStateJson = serde_json::from_slice(json).map_err(|error| KvError::VbState {
            reason: error.to_string(),
        })?;
        let hlc_epoch = match json.hlc_epoch {
            -1 => None,
            epoch => Some(Seqno(u64::try_from(epoch).map_err(|_| {
                KvError::VbState {
                    reason: format!("`hlc_epoch` of -1 or more is wanted, found {epoch}"),
                }
            })?)),
        };
        // Old releases lacked it, and some wrote all ones for "unknown".
        let max_cas = json.max_cas.filter(|cas| *cas < u64::MAX);
        Ok(Self {
            state: json.state,
            max_deleted_seqno: Seqno(json.max_deleted_seqno),
            snap_start: Seqno(json.snap_start),
            snap_end: Seqno(json.snap_end),
            max_cas: Cas(max_cas.unwrap_or(0)),
            has_max_cas: max_cas.is_some(),
            hlc_epoch,
            might_contain_xattrs: json.might_contain_xattrs,
            namespaces_supported: json.namespaces_supported,
            version: json.version,
            completed_seqno: Seqno(json.completed_seqno),
            prepared_seqno: Seqno(json.prepared_seqno),
            high_prepared_seqno: Seqno(json.high_prepared_seqno),
            max_visible_seqno: json.max_visible_seqno.map_or(high_seqno, Seqno),
            on_disk_prepares: json.on_disk.on_disk_prepares,
            on_disk_prepare_bytes: json.on_disk.on_disk_prepare_bytes,
            checkpoint: json.checkpoint_type,
            build: json.build,
            failover_table: json.failover_table,
            replication_topology: json.replication_topology,
            catch_up: json.catch_up,
            installed: json.installed.map(VbUuid),
        })
    }

    /// Encodes the local document.
    ///
    /// # Panics
    /// Panics if `hlc_epoch` is above 2^63, which no seqno is.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let hlc_epoch = self.hlc_epoch.map_or(-1, |epoch| {
            i64::try_from(epoch.get()).expect("seqnos have at most 48 bits")
        });
        let json = VbStateJson {
            build: self.build.clone(),
            catch_up: self.catch_up.clone(),
            checkpoint_type: self.checkpoint,
            completed_seqno: self.completed_seqno.get(),
            failover_table: self.failover_table.clone(),
            high_prepared_seqno: self.high_prepared_seqno.get(),
            hlc_epoch,
            installed: self.installed.map(VbUuid::get),
            max_cas: Some(self.max_cas.get()),
            max_deleted_seqno: self.max_deleted_seqno.get(),
            max_visible_seqno: Some(self.max_visible_seqno.get()),
            might_contain_xattrs: self.might_contain_xattrs,
            namespaces_supported: self.namespaces_supported,
            on_disk: OnDiskPreparesJson {
                on_disk_prepare_bytes: self.on_disk_prepare_bytes,
                on_disk_prepares: self.on_disk_prepares,
            },
            prepared_seqno: self.prepared_seqno.get(),
            replication_topology: self.replication_topology.clone(),
            snap_end: self.snap_end.get(),
            snap_start: self.snap_start.get(),
            state: self.state,
            version: VERSION,
        };
        serde_json::to_vec(&json).expect("strings, numbers and truths always have a JSON text")
    }

    /// Compares the snapshot with the file's high seqno, which has to be within it. A vBucket that is
    /// [`SnapshotRange::Unusable`] has to be rebuilt from another node.
    pub fn check_snapshot(&mut self, high_seqno: Seqno) -> SnapshotRange {
        if (self.snap_start..=self.snap_end).contains(&high_seqno) {
            return SnapshotRange::Sound;
        }
        if self.state != VbStateKind::Active {
            return SnapshotRange::Unusable;
        }
        (self.snap_start, self.snap_end) = (high_seqno, high_seqno);
        SnapshotRange::Repaired
    }
}

const fn no_epoch() -> i64 {
    -1
}

const fn first_version() -> u32 {
    1
}

/// Numbers as strings of decimal digits.
mod decimal {
    use serde::de::{Deserialize as _, Deserializer, Error as _};
    use serde::ser::Serializer;
    use std::borrow::Cow;
    use std::fmt::Display;
    use std::str::FromStr;

    pub(super) fn serialize<T: Display, S: Serializer>(n: &T, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(n)
    }

    pub(super) fn deserialize<'de, T: FromStr, D: Deserializer<'de>>(d: D) -> Result<T, D::Error> {
        let text = Cow::<str>::deserialize(d)?;
        // `FromStr` accepts a plus sign, which no program writes.
        let digits = text.strip_prefix('-').unwrap_or(&text);
        let number = text.parse().ok();
        number
            .filter(|_| digits.bytes().all(|digit| digit.is_ascii_digit()))
            .ok_or_else(|| D::Error::custom("a number in decimal digits is wanted"))
    }
}

mod decimal_or_none {
    use serde::de::Deserializer;
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(n: &Option<u64>, s: S) -> Result<S::Ok, S::Error> {
        match n {
            Some(n) => super::decimal::serialize(n, s),
            None => s.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
        super::decimal::deserialize(d).map(Some)
    }
}

/// Implements a newtype over a plain JSON number.
macro_rules! bare_number {
    ($module:ident, $name:ident) => {
        mod $module {
            use kedge_types::$name;
            use serde::de::{Deserialize as _, Deserializer};
            use serde::ser::Serializer;

            pub(super) fn serialize<S: Serializer>(n: &$name, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_u64(n.get())
            }

            pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<$name, D::Error> {
                u64::deserialize(d).map($name)
            }
        }
    };
}

bare_number!(uuid, VbUuid);
bare_number!(seq, Seqno);
