//! Statistics of one key, and the comparison of memory with the file.

use crate::item::Item;
use crate::results::{KeyFigures, KeyValidity, Meta, StepOutcome};
use crate::step::Step;
use crate::value::inflated;
use kedge_types::{DocKey, Now, Seqno, Status};

/// The result of a lookup of a key in the file.
#[derive(Clone, Copy, Debug)]
pub struct FileLookup<'i> {
    /// The [`crate::VBucket::history_id`] before the lookup.
    pub history: u32,
    /// The [`crate::VBucket::applied_seqno`] before the lookup.
    pub applied: Seqno,
    /// The document or tombstone in the file.
    pub item: Option<&'i Item>,
}

impl Step<'_> {
    /// Returns the statistics of a live document in memory. Does not remove an expired document and counts no access.
    ///
    /// # Errors
    /// `KeyNotFound`, `UnknownCollection`.
    pub fn key_figures(&self, key: &DocKey) -> Result<StepOutcome<KeyFigures>, Status> {
        self.store.collections.check(key)?;
        let hash = self.store.documents.hash(key.as_bytes());
        match self.store.documents.find(hash, key.as_bytes()) {
            Some(item) if is_live(self.now, item) => Ok(StepOutcome::Done(self.figures_of(item))),
            Some(_) => Err(Status::KeyNotFound),
            None => self.absent(hash, key.as_bytes()),
        }
    }

    /// Compares the document of a key in memory with the file, and returns its statistics.
    ///
    /// # Errors
    /// `KeyNotFound`, `UnknownCollection`; `TemporaryFailure` if the lookup was in another history; `Internal` if a
    /// compressed value is invalid.
    pub fn validate_key(&self, key: &DocKey, stored: FileLookup<'_>) -> Result<KeyFigures, Status> {
        self.store.collections.check(key)?;
        if stored.history != self.store.unapplied.history() {
            return Err(Status::TemporaryFailure);
        }
        let hash = self.store.documents.hash(key.as_bytes());
        let Some(item) = self.store.documents.find(hash, key.as_bytes()) else {
            let item = stored.item.filter(|item| is_live(self.now, item));
            return Ok(KeyFigures {
                is_resident: false,
                validity: Some(KeyValidity::Valid),
                ..self.figures_of(item.ok_or(Status::KeyNotFound)?)
            });
        };
        let validity = if !is_live(self.now, item) {
            KeyValidity::ItemDeleted
        } else if item.seqno() > stored.applied {
            KeyValidity::Dirty
        } else {
            compare(item, stored.item)?
        };
        Ok(KeyFigures {
            validity: Some(validity),
            ..self.figures_of(item)
        })
    }

    fn figures_of(&self, item: &Item) -> KeyFigures {
        KeyFigures {
            meta: Meta::of(item, item.cas()),
            state: self.store.state,
            is_dirty: item.seqno() > self.store.history.persisted_seqno,
            is_resident: item.is_resident(),
            validity: None,
        }
    }
}

fn is_live(now: Now, item: &Item) -> bool {
    !item.is_deleted() && !item.expiry().has_passed(now.unix_secs())
}

/// Compares a live document, which the file should have, with the file. The CAS is ignored, because the CAS of a lock
/// is not on disk.
fn compare(item: &Item, stored: Option<&Item>) -> Result<KeyValidity, Status> {
    let Some(stored) = stored.filter(|stored| !stored.is_deleted()) else {
        return Ok(KeyValidity::RamButNotDisk);
    };
    if item.flags() != stored.flags() {
        return Ok(KeyValidity::FlagsMismatch);
    }
    let version = |item: &Item| (item.seqno(), item.rev_seqno(), item.expiry());
    let is_same = version(item) == version(stored);
    if item.is_resident() {
        let plain = |item| -> Result<_, Status> {
            inflated(Item::value(item), item.datatype()).map_err(|_| Status::Internal)
        };
        let (ours, theirs) = (plain(item)?, plain(stored)?);
        if ours.len() != theirs.len() {
            return Ok(KeyValidity::LengthMismatch);
        }
        if ours != theirs {
            return Ok(KeyValidity::DataMismatch);
        }
    }
    Ok(if is_same {
        KeyValidity::Valid
    } else {
        KeyValidity::DataMismatch
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::{Deletion, ItemMeta};
    use kedge_types::{Cas, Datatype};

    fn item(meta: ItemMeta, value: &[u8]) -> Item {
        Item::new(&meta, b"\0k", &[value])
    }

    fn meta() -> ItemMeta {
        ItemMeta {
            seqno: Seqno(7),
            cas: Cas(1),
            flags: 5,
            ..ItemMeta::default()
        }
    }

    #[test]
    fn key_comparison_names_the_difference() {
        let ours = item(meta(), b"value");
        let packed = snap::raw::Encoder::new().compress_vec(b"value").unwrap();
        let with = |change: fn(&mut ItemMeta)| {
            let mut meta = meta();
            change(&mut meta);
            meta
        };
        for (stored, expected) in [
            (None, KeyValidity::RamButNotDisk),
            (
                Some(item(with(|it| it.deleted = Some(Deletion::Explicit)), b"")),
                KeyValidity::RamButNotDisk,
            ),
            (Some(item(meta(), b"value")), KeyValidity::Valid),
            (
                Some(item(with(|it| it.datatype = Datatype::SNAPPY), &packed)),
                KeyValidity::Valid,
            ),
            (
                Some(item(with(|it| it.cas = Cas(2)), b"value")),
                KeyValidity::Valid,
            ),
            (
                Some(item(with(|it| it.flags = 6), b"value")),
                KeyValidity::FlagsMismatch,
            ),
            (Some(item(meta(), b"values")), KeyValidity::LengthMismatch),
            (Some(item(meta(), b"VALUE")), KeyValidity::DataMismatch),
            (
                Some(item(with(|it| it.seqno = Seqno(8)), b"value")),
                KeyValidity::DataMismatch,
            ),
        ] {
            assert_eq!(compare(&ours, stored.as_ref()), Ok(expected), "{stored:?}");
        }
        let broken = item(with(|it| it.datatype = Datatype::SNAPPY), b"\xff\xff\xff");
        assert_eq!(compare(&ours, Some(&broken)), Err(Status::Internal));
        let elsewhere = ours.without_value();
        for (value, expected) in [
            (&b"VALUE"[..], KeyValidity::Valid),
            (b"longer value", KeyValidity::Valid),
        ] {
            let stored = item(meta(), value);
            assert_eq!(compare(&elsewhere, Some(&stored)), Ok(expected));
        }
    }
}
