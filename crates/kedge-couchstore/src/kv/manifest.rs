//! The collection manifest of a vBucket, in four local documents. Couchstore file format, section 3.4.
//!
//! All four are absent until the manifest changes for the first time. Until then there is only the default collection,
//! open since seqno 0 in the default scope. The fields of the flatbuffers are in the order of the structs' fields, with
//! ids counted from 0.

use super::KvError;
use super::flatbuf::{FlatField, FlatTable, finish};
use kedge_types::{CollectionId, ManifestUid, ScopeId, Seqno};

/// The manifest that the vBucket has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommittedManifest {
    /// The version.
    pub uid: ManifestUid,
}

/// A collection that is open in the vBucket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredCollection {
    /// The seqno of the event that opened it.
    pub start: Seqno,
    /// The scope.
    pub scope: ScopeId,
    /// The id.
    pub collection: CollectionId,
    /// The time to live of its documents in seconds, if it has a rule; 0 means no limit, whatever the bucket's setting.
    pub max_ttl: Option<u32>,
    /// The name.
    pub name: String,
    /// `true` if it keeps the history of its documents.
    pub history: bool,
    /// `true` if its use is metered.
    pub metered: bool,
    /// The manifest that flushed it last.
    pub flush_uid: ManifestUid,
}

/// The local document `_local/collections/open`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredCollections {
    /// The collections, in no particular order.
    pub entries: Vec<StoredCollection>,
}

/// A scope that is open in the vBucket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredScope {
    /// The seqno of the event that opened it.
    pub start: Seqno,
    /// The id.
    pub scope: ScopeId,
    /// The name.
    pub name: String,
}

/// The local document `_local/scope/open`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scopes {
    /// The scopes, in no particular order.
    pub entries: Vec<StoredScope>,
}

/// A dropped collection whose documents may still be in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DroppedCollection {
    /// The seqno of the event that opened it.
    pub start: Seqno,
    /// The seqno of the event that dropped it. A later document belongs to a later collection of the same id.
    pub end: Seqno,
    /// The id.
    pub collection: CollectionId,
}

/// The local document `_local/collections/dropped`, which is removed once compaction has purged the documents.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DroppedCollections {
    /// The collections, in no particular order.
    pub entries: Vec<DroppedCollection>,
}

impl CommittedManifest {
    /// Decodes the local document.
    ///
    /// # Errors
    /// [`KvError`] if the flatbuffer is malformed.
    pub fn decode(bytes: &[u8]) -> Result<Self, KvError> {
        Ok(Self {
            uid: ManifestUid(FlatTable::root(bytes)?.u64(0)?),
        })
    }

    /// Encodes the local document.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        finish(&[FlatField::U64(self.uid.0)])
    }
}

impl StoredCollections {
    /// Decodes the local document.
    ///
    /// # Errors
    /// [`KvError`] if the flatbuffer is malformed.
    pub fn decode(bytes: &[u8]) -> Result<Self, KvError> {
        let mut names = NameBudget::of(bytes);
        let entries = entries(bytes, |table| {
            Ok(StoredCollection {
                start: Seqno(table.u64(0)?),
                scope: ScopeId(table.u32(1)?),
                collection: CollectionId(table.u32(2)?),
                max_ttl: max_ttl(table, 3, 4)?,
                name: names.take(table, 5)?,
                history: table.bool(6)?,
                metered: table.bool(7)?,
                flush_uid: ManifestUid(table.u64(8)?),
            })
        })?;
        Ok(Self { entries })
    }

    /// Encodes the local document.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        finish_entries(&self.entries, |entry| {
            vec![
                FlatField::U64(entry.start.get()),
                FlatField::U32(entry.scope.0),
                FlatField::U32(entry.collection.get()),
                FlatField::Bool(entry.max_ttl.is_some()),
                FlatField::U32(entry.max_ttl.unwrap_or_default()),
                FlatField::Str(&entry.name),
                FlatField::Bool(entry.history),
                FlatField::Bool(entry.metered),
                FlatField::U64(entry.flush_uid.0),
            ]
        })
    }
}

impl Scopes {
    /// Decodes the local document.
    ///
    /// # Errors
    /// [`KvError`] if the flatbuffer is malformed.
    pub fn decode(bytes: &[u8]) -> Result<Self, KvError> {
        let mut names = NameBudget::of(bytes);
        let entries = entries(bytes, |table| {
            Ok(StoredScope {
                start: Seqno(table.u64(0)?),
                scope: ScopeId(table.u32(1)?),
                name: names.take(table, 2)?,
            })
        })?;
        Ok(Self { entries })
    }

    /// Encodes the local document.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        finish_entries(&self.entries, |entry| {
            vec![
                FlatField::U64(entry.start.get()),
                FlatField::U32(entry.scope.0),
                FlatField::Str(&entry.name),
            ]
        })
    }
}

impl DroppedCollections {
    /// Decodes the local document.
    ///
    /// # Errors
    /// [`KvError`] if the flatbuffer is malformed.
    pub fn decode(bytes: &[u8]) -> Result<Self, KvError> {
        let entries = entries(bytes, |table| {
            Ok(DroppedCollection {
                start: Seqno(table.u64(0)?),
                end: Seqno(table.u64(1)?),
                collection: CollectionId(table.u32(2)?),
            })
        })?;
        Ok(Self { entries })
    }

    /// Encodes the local document.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        finish_entries(&self.entries, |entry| {
            vec![
                FlatField::U64(entry.start.get()),
                FlatField::U64(entry.end.get()),
                FlatField::U32(entry.collection.get()),
            ]
        })
    }
}

/// Decodes a rule about expiry in two fields: whether there is one, and its number of seconds.
pub(super) fn max_ttl(
    table: &FlatTable<'_>,
    valid: usize,
    secs: usize,
) -> Result<Option<u32>, KvError> {
    let secs = table.u32(secs)?;
    Ok(table.bool(valid)?.then_some(secs))
}

/// Decodes the tables of field 0 of the root.
fn entries<'a, T>(
    bytes: &'a [u8],
    mut decode: impl FnMut(&FlatTable<'a>) -> Result<T, KvError>,
) -> Result<Vec<T>, KvError> {
    let root = FlatTable::root(bytes)?;
    root.tables(0)?.map(|table| decode(&table?)).collect()
}

fn finish_entries<'a, T>(
    entries: &'a [T],
    fields: impl Fn(&'a T) -> Vec<FlatField<'a>>,
) -> Vec<u8> {
    finish(&[FlatField::Tables(entries.iter().map(fields).collect())])
}

/// A budget for copying names out of a flatbuffer. Many tables of a hostile one may share a long name. The names of a
/// valid one are shorter than the buffer together, so that length is the budget.
struct NameBudget {
    bytes_left: usize,
}

impl NameBudget {
    fn of(buffer: &[u8]) -> Self {
        Self {
            bytes_left: buffer.len(),
        }
    }

    fn take(&mut self, table: &FlatTable<'_>, index: usize) -> Result<String, KvError> {
        let name = table.string(index)?;
        let left = self.bytes_left.checked_sub(name.len());
        self.bytes_left = left.ok_or(KvError::Flatbuffer {
            offset: 0,
            expected: "names that fit the buffer together",
        })?;
        Ok(name.to_owned())
    }
}
