//! The collection manifest of a vBucket, in four local documents. Couchstore file format, section 3.4.
//!
//! All four are absent until the manifest changes for the first time: then there is the default collection alone, open
//! since seqno 0 in the default scope. Fields of the flatbuffers have the order of the struct's, and their ids count
//! from 0.

use super::KvError;
use super::flatbuf::{Field, Table, finish};
use kedge_types::{CollectionId, ManifestUid, ScopeId, Seqno};

/// Which manifest the vBucket follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommittedManifest {
    /// Its version.
    pub uid: ManifestUid,
}

/// A collection that is open in the vBucket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenCollection {
    /// The seqno of the event that opened it.
    pub start: Seqno,
    /// The scope that it is in.
    pub scope: ScopeId,
    /// Its id.
    pub collection: CollectionId,
    /// Seconds that its documents live, if it has a rule; 0 is for ever, whatever the bucket says.
    pub max_ttl: Option<u32>,
    /// Its name.
    pub name: String,
    /// Whether the history of its documents is kept.
    pub history: bool,
    /// Whether its use is counted.
    pub metered: bool,
    /// The manifest that flushed it last.
    pub flush_uid: ManifestUid,
}

/// `_local/collections/open`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenCollections {
    /// The collections, in no order.
    pub entries: Vec<OpenCollection>,
}

/// A scope that is open in the vBucket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenScope {
    /// The seqno of the event that opened it.
    pub start: Seqno,
    /// Its id.
    pub scope: ScopeId,
    /// Its name.
    pub name: String,
}

/// `_local/scope/open`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scopes {
    /// The scopes, in no order.
    pub entries: Vec<OpenScope>,
}

/// A collection that was dropped and whose documents may still be in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DroppedCollection {
    /// The seqno of the event that opened it.
    pub start: Seqno,
    /// The seqno of the event that dropped it: a later document is of a later collection of the same id.
    pub end: Seqno,
    /// Its id.
    pub collection: CollectionId,
}

/// `_local/collections/dropped`; removed once compaction has purged them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DroppedCollections {
    /// The collections, in no order.
    pub entries: Vec<DroppedCollection>,
}

impl CommittedManifest {
    /// The value of the local document.
    ///
    /// # Errors
    /// It is not the flatbuffer that it should be.
    pub fn decode(bytes: &[u8]) -> Result<Self, KvError> {
        Ok(Self {
            uid: ManifestUid(Table::root(bytes)?.u64(0)?),
        })
    }

    /// The value of the local document.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        finish(&[Field::U64(self.uid.0)])
    }
}

impl OpenCollections {
    /// The value of the local document.
    ///
    /// # Errors
    /// It is not the flatbuffer that it should be.
    pub fn decode(bytes: &[u8]) -> Result<Self, KvError> {
        let mut names = Names::of(bytes);
        let entries = entries(bytes, |table| {
            Ok(OpenCollection {
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

    /// The value of the local document.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        finish_entries(&self.entries, |entry| {
            vec![
                Field::U64(entry.start.get()),
                Field::U32(entry.scope.0),
                Field::U32(entry.collection.get()),
                Field::Bool(entry.max_ttl.is_some()),
                Field::U32(entry.max_ttl.unwrap_or_default()),
                Field::Str(&entry.name),
                Field::Bool(entry.history),
                Field::Bool(entry.metered),
                Field::U64(entry.flush_uid.0),
            ]
        })
    }
}

impl Scopes {
    /// The value of the local document.
    ///
    /// # Errors
    /// It is not the flatbuffer that it should be.
    pub fn decode(bytes: &[u8]) -> Result<Self, KvError> {
        let mut names = Names::of(bytes);
        let entries = entries(bytes, |table| {
            Ok(OpenScope {
                start: Seqno(table.u64(0)?),
                scope: ScopeId(table.u32(1)?),
                name: names.take(table, 2)?,
            })
        })?;
        Ok(Self { entries })
    }

    /// The value of the local document.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        finish_entries(&self.entries, |entry| {
            vec![
                Field::U64(entry.start.get()),
                Field::U32(entry.scope.0),
                Field::Str(&entry.name),
            ]
        })
    }
}

impl DroppedCollections {
    /// The value of the local document.
    ///
    /// # Errors
    /// It is not the flatbuffer that it should be.
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

    /// The value of the local document.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        finish_entries(&self.entries, |entry| {
            vec![
                Field::U64(entry.start.get()),
                Field::U64(entry.end.get()),
                Field::U32(entry.collection.get()),
            ]
        })
    }
}

/// A rule about expiry in two fields: whether there is one, and how many seconds it says.
pub(super) fn max_ttl(
    table: &Table<'_>,
    valid: usize,
    secs: usize,
) -> Result<Option<u32>, KvError> {
    let secs = table.u32(secs)?;
    Ok(table.bool(valid)?.then_some(secs))
}

/// Decodes the tables of field 0 of the root.
fn entries<'a, T>(
    bytes: &'a [u8],
    mut decode: impl FnMut(&Table<'a>) -> Result<T, KvError>,
) -> Result<Vec<T>, KvError> {
    let root = Table::root(bytes)?;
    root.tables(0)?.map(|table| decode(&table?)).collect()
}

fn finish_entries<'a, T>(entries: &'a [T], fields: impl Fn(&'a T) -> Vec<Field<'a>>) -> Vec<u8> {
    finish(&[Field::Tables(entries.iter().map(fields).collect())])
}

/// Copies names out of a flatbuffer. Many tables of a hostile one may share a long name; those of an honest one
/// together are shorter than the buffer that they stand in, so that is what may be copied.
struct Names {
    bytes_left: usize,
}

impl Names {
    fn of(buffer: &[u8]) -> Self {
        Self {
            bytes_left: buffer.len(),
        }
    }

    fn take(&mut self, table: &Table<'_>, index: usize) -> Result<String, KvError> {
        let name = table.string(index)?;
        let left = self.bytes_left.checked_sub(name.len());
        self.bytes_left = left.ok_or(KvError::Flatbuffer {
            offset: 0,
            expected: "names that fit the buffer together",
        })?;
        Ok(name.to_owned())
    }
}
