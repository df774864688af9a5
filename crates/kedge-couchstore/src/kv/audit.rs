//! An audit of everything that the engine stores in one file: it decodes all of it and compares the statistics with the
//! documents.
//!
//! Invariant: the audit counts only for collections with statistics, so memory is bounded by the local documents,
//! whatever the number of documents.

use std::collections::BTreeMap;

use super::{
    CollectionStats, DiskKey, EntryMeta, KvError, LocalDocument, Meaning, SnapshotRange,
    StoredSystemEvent, Value, VbStateDocument,
};
use crate::Entry;
use kedge_types::{CollectionId, Datatype, Seqno};
use serde::de::IgnoredAny;

/// The audit of one file. It receives the local documents first, then every document and tombstone.
#[derive(Debug)]
pub struct FileAudit {
    high_seqno: Seqno,
    state: Option<Box<VbStateDocument>>,
    collections: BTreeMap<CollectionId, CollectionTally>,
    /// For each dropped collection, the seqno up to which its documents belong to it.
    dropped: BTreeMap<CollectionId, Seqno>,
    prepares: u64,
    sees_state: bool,
}

/// The counts of a collection, and its statistics.
#[derive(Debug)]
struct CollectionTally {
    stated: CollectionStats,
    items: u64,
    high_seqno: Seqno,
}

/// A difference between the statistics and the documents. The documents are intact nevertheless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Disagreement {
    /// The number of live committed documents of a collection.
    #[error("collection {:#x} has {found} documents, its statistics say {stated}", collection.get())]
    Items {
        /// The collection.
        collection: CollectionId,
        /// The number in the local document.
        stated: u64,
        /// The number of documents.
        found: u64,
    },
    /// A collection has an entry above its highest seqno.
    #[error("collection {:#x} has the seqno {found}, its statistics end at {stated}", collection.get())]
    HighSeqno {
        /// The collection.
        collection: CollectionId,
        /// The seqno in the local document.
        stated: Seqno,
        /// The seqno of the entry.
        found: Seqno,
    },
    /// The number of prepares that are not aborted.
    #[error("there are {found} prepares, the state of the vBucket says {stated}")]
    Prepares {
        /// The number in the vBucket state.
        stated: u64,
        /// The number of prepares.
        found: u64,
    },
    /// The vBucket state has no highest CAS, as in files of old releases. An import takes that of the documents.
    #[error("the state of the vBucket does not say its highest CAS, as an old release left it")]
    NoMaxCas,
    /// The snapshot of a vBucket that is not active does not contain its high seqno, so that the vBucket has to be
    /// rebuilt.
    #[error("the snapshot from {start} to {end} does not contain the highest seqno {high_seqno}")]
    Snapshot {
        /// Start of the snapshot.
        start: Seqno,
        /// End of the snapshot.
        end: Seqno,
        /// The highest seqno.
        high_seqno: Seqno,
    },
}

impl FileAudit {
    /// Creates the audit of a file whose header has `high_seqno` as its update seqno.
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

    /// Returns `true` if the file belongs to a vBucket: it has [`super::VBSTATE_NAME`], sound or not. Other files may
    /// have other documents than the audit expects.
    #[must_use]
    pub fn is_vbucket(&self) -> bool {
        self.sees_state
    }

    /// Returns the state of the vBucket, if it exists and is sound.
    #[must_use]
    pub fn state(&self) -> Option<&VbStateDocument> {
        self.state.as_deref()
    }

    /// Audits the next local document.
    ///
    /// # Errors
    /// [`KvError`] if it does not have the format that its name requires.
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
                let tally = CollectionTally {
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

    /// Audits the next document, with its body as from [`crate::BodyForm::Plain`].
    ///
    /// # Errors
    /// [`KvError`] if its key, metadata or body is malformed, or if they contradict each other.
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
                let event = StoredSystemEvent::decode(kind, dropped, body)?;
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

    /// Returns the differences between statistics and documents. Called after all documents.
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
            // The stated seqno may be higher: its entry was purged.
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
    // Skipped parts are not checked to be UTF-8, and need no stack whatever their depth.
    str::from_utf8(document).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_distinguished_from_other_bytes() {
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
