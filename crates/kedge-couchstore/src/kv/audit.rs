//! Everything that the engine keeps in one file, decoded, and its statistics held against the documents.
//!
//! Invariant: what is counted is counted only for collections that have statistics, so memory is bounded by the local
//! documents, however many documents there are.

use std::collections::BTreeMap;

use super::{
    CollectionStats, DiskKey, EntryMeta, KvError, LocalDocument, Meaning, SnapshotRange,
    SystemEvent, Value, VbStateDocument,
};
use crate::Entry;
use kedge_types::{CollectionId, Datatype, Seqno};
use serde::de::IgnoredAny;

/// Goes through the contents of one file. Local documents come first, then every document and tombstone.
#[derive(Debug)]
pub struct Audit {
    high_seqno: Seqno,
    state: Option<Box<VbStateDocument>>,
    collections: BTreeMap<CollectionId, Tally>,
    /// Up to where documents of a collection belong to one that was dropped.
    dropped: BTreeMap<CollectionId, Seqno>,
    prepares: u64,
    sees_state: bool,
}

/// What is counted of a collection, and what its statistics say.
#[derive(Debug)]
struct Tally {
    stated: CollectionStats,
    items: u64,
    high_seqno: Seqno,
}

/// Statistics that do not say what the documents are. The documents are whole all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Disagreement {
    /// The number of live committed documents of a collection.
    #[error("collection {:#x} has {found} documents, its statistics say {stated}", collection.get())]
    Items {
        /// The collection.
        collection: CollectionId,
        /// What the local document says.
        stated: u64,
        /// What is there.
        found: u64,
    },
    /// A collection has an entry above its highest seqno.
    #[error("collection {:#x} has the seqno {found}, its statistics end at {stated}", collection.get())]
    HighSeqno {
        /// The collection.
        collection: CollectionId,
        /// What the local document says.
        stated: Seqno,
        /// What is there.
        found: Seqno,
    },
    /// The number of prepares that are not aborted.
    #[error("there are {found} prepares, the state of the vBucket says {stated}")]
    Prepares {
        /// What the state says.
        stated: u64,
        /// What is there.
        found: u64,
    },
    /// The state of the vBucket does not say its highest CAS, as those of old releases do not. An import takes that of the
    /// documents.
    #[error("the state of the vBucket does not say its highest CAS, as an old release left it")]
    NoMaxCas,
    /// The snapshot of a vBucket that is not active does not contain its high seqno, so that it has to be built anew.
    #[error("the snapshot from {start} to {end} does not contain the highest seqno {high_seqno}")]
    Snapshot {
        /// Where the snapshot starts.
        start: Seqno,
        /// Where it ends.
        end: Seqno,
        /// The highest seqno.
        high_seqno: Seqno,
    },
}

impl Audit {
    /// Of a file whose header has `high_seqno` as its update seqno.
    #[must_use]
    pub fn new(high_seqno: Seqno) -> Self {
        Self {
            high_seqno,
            state: None,
            collections: BTreeMap::new(),
            dropped: BTreeMap::new(),
            prepares: 0,
            sees_state: false,
        }
    }

    /// Whether the file is a vBucket's: it has [`super::VBSTATE_NAME`], sound or not. The documents of another need
    /// not be what is expected here.
    #[must_use]
    pub fn is_vbucket(&self) -> bool {
        self.sees_state
    }

    /// The state of the vBucket, if it was there and sound.
    #[must_use]
    pub fn state(&self) -> Option<&VbStateDocument> {
        self.state.as_deref()
    }

    /// The next local document.
    ///
    /// # Errors
    /// It is not what its name says.
    pub fn local(&mut self, name: &[u8], value: &[u8]) -> Result<(), KvError> {
        self.sees_state |= name == super::VBSTATE_NAME;
        match LocalDocument::decode(name, value, self.high_seqno)? {
            Some(LocalDocument::VbState(state)) => self.state = Some(state),
            Some(LocalDocument::DroppedCollections(dropped)) => {
                for entry in dropped.entries {
                    let end = self.dropped.entry(entry.collection).or_default();
                    *end = entry.end.max(*end);
                }
            }
            Some(LocalDocument::Stats(collection, stated)) => {
                let tally = Tally {
                    stated,
                    items: 0,
                    high_seqno: Seqno(0),
                };
                self.collections.insert(collection, tally);
            }
            _ => {}
        }
        Ok(())
    }

    /// The next document, with its body as [`crate::Form::Plain`] gives it.
    ///
    /// # Errors
    /// Its key, metadata or body is malformed, or they contradict each other.
    pub fn document(&mut self, entry: &Entry, body: Option<&[u8]>) -> Result<(), KvError> {
        let key = DiskKey::decode(entry.key())?;
        let meta = EntryMeta::decode(entry.is_deleted(), entry.content_meta(), entry.rev_meta())?;
        let meaning = meta.meaning(&key)?;
        self.count(entry.seqno(), &key, meaning);
        let Some(body) = body else {
            return Ok(());
        };
        match meaning {
            Meaning::SystemEvent {
                kind,
                subject,
                dropped,
            } => {
                let event = SystemEvent::decode(kind, dropped, body)?;
                if event.key() != (kind, subject, dropped) {
                    return Err(KvError::Entry {
                        expected: "the same subject in a system event's key and body",
                    });
                }
                Ok(())
            }
            _ => check_value(meta.rev_meta.datatype, body),
        }
    }

    fn count(&mut self, seqno: Seqno, key: &DiskKey<'_>, meaning: Meaning) {
        if matches!(
            meaning,
            Meaning::Prepare { .. } | Meaning::LegacyCommit { .. }
        ) {
            self.prepares += 1;
        }
        let DiskKey::Document { collection, .. } = key else {
            return;
        };
        if (self.dropped.get(collection)).is_some_and(|end| seqno <= *end) {
            return;
        }
        if let Some(tally) = self.collections.get_mut(collection) {
            tally.high_seqno = tally.high_seqno.max(seqno);
            tally.items += u64::from(meaning == Meaning::Live);
        }
    }

    /// What the statistics say and the documents do not, once all were shown.
    #[must_use]
    pub fn disagreements(&self) -> Vec<Disagreement> {
        let mut found = Vec::new();
        for (&collection, tally) in &self.collections {
            let stated = &tally.stated;
            if tally.items != stated.items {
                found.push(Disagreement::Items {
                    collection,
                    stated: stated.items,
                    found: tally.items,
                });
            }
            // It may be higher than what is there: what had it was purged.
            if tally.high_seqno > stated.high_seqno {
                found.push(Disagreement::HighSeqno {
                    collection,
                    stated: stated.high_seqno,
                    found: tally.high_seqno,
                });
            }
        }
        let Some(state) = &self.state else {
            return found;
        };
        if state.on_disk_prepares != self.prepares {
            found.push(Disagreement::Prepares {
                stated: state.on_disk_prepares,
                found: self.prepares,
            });
        }
        if !state.has_max_cas {
            found.push(Disagreement::NoMaxCas);
        }
        if state.clone().check_snapshot(self.high_seqno) == SnapshotRange::Unusable {
            found.push(Disagreement::Snapshot {
                start: state.snap_start,
                end: state.snap_end,
                high_seqno: self.high_seqno,
            });
        }
        found
    }
}

fn check_value(datatype: Datatype, body: &[u8]) -> Result<(), KvError> {
    let value = Value::decode(datatype, body)?;
    let document = value.document();
    let claims_json = datatype.contains(Datatype::JSON) && !document.is_empty();
    if claims_json && !is_json(document) {
        return Err(KvError::Value {
            expected: "JSON, as its datatype says",
        });
    }
    Ok(())
}

fn is_json(document: &[u8]) -> bool {
    // What is skipped is not looked at for being UTF-8, and needs no stack however deep it is.
    str::from_utf8(document).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_told_from_other_bytes() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        for sound in [
            "1",
            " {\"a\": [null, -1.5e300]} ",
            "\"\\u00e4\u{e4}\"",
            &deep,
        ] {
            assert!(is_json(sound.as_bytes()), "{sound:.40}");
        }
        for other in [
            &b""[..],
            b"{",
            b"{\"a\":1}x",
            b"'a'",
            b"\"\xff\"",
            b"01",
            b"[1,]",
        ] {
            assert!(!is_json(other), "{}", other.escape_ascii());
        }
    }
}
