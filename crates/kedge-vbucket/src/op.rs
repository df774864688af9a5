//! Commands on one document, as values.
//!
//! The same value is used for the first run of a command and for its resumption after a wait: for a document from the
//! disk, for memory, or for the vBucket to become active. A waiting command owns its arguments ([`DocOp::into_owned`]).

use crate::completion::Completion;
use crate::item::Item;
use crate::modify::Modify;
use crate::patch::Patches;
use crate::results::{DocumentRef, KeyFigures, Meta, Mutated, ObserveState, StepOutcome};
use crate::step::Step;
use crate::value::NewValue;
use crate::with_meta::WithMetaArgs;
use crate::write::{ConcatMode, CounterOp, StepWrite, StoreMode};
use kedge_types::{Cas, DocKey, Expiry, Status};
use std::borrow::Cow;
use std::sync::Arc;

/// A command with its arguments, except those that all commands share ([`StepWrite`]).
#[derive(Clone, Debug)]
pub enum DocOp<'a> {
    /// Reads a document.
    Get,
    /// Reads a document or tombstone.
    GetWithTombstones,
    /// Reads a replica's document.
    GetReplica,
    /// Reads a replica's document or tombstone.
    GetReplicaWithTombstones,
    /// Reads metadata.
    GetMeta,
    /// Reads a document and locks it.
    GetAndLock {
        /// The duration in seconds, or 0 for the default.
        secs: u32,
    },
    /// Unlocks a document with the CAS of the lock.
    Unlock(Cas),
    /// Reads the persistence state of the last change.
    Observe,
    /// Reads statistics of the key.
    KeyFigures,
    /// Stores a value.
    Store {
        /// The condition on the existing document.
        mode: StoreMode,
        /// The value.
        value: NewValue<'a>,
        /// The flags that the client set.
        flags: u32,
        /// The expiry.
        expiry: Expiry,
    },
    /// Appends or prepends bytes to a value.
    Concat {
        /// The end of the value.
        mode: ConcatMode,
        /// The bytes.
        bytes: Cow<'a, [u8]>,
    },
    /// Deletes a document.
    Delete,
    /// Stores or deletes a document with given metadata, as XDCR does.
    WithMeta {
        /// The metadata.
        args: WithMetaArgs,
        /// The value.
        value: NewValue<'a>,
        /// The places in the value where the CAS and the seqno are written.
        patches: Cow<'a, Patches>,
    },
    /// Computes a new version from the existing document.
    Modify {
        /// The change.
        change: Arc<dyn Modify>,
        /// The expiry of the new version.
        expiry: Expiry,
    },
    /// Adds to or subtracts from a counter.
    Arithmetic(CounterOp),
    /// Changes the expiry of a document.
    Touch {
        /// The expiry.
        expiry: Expiry,
    },
    /// Changes the expiry of a document and reads it.
    GetAndTouch {
        /// The expiry.
        expiry: Expiry,
    },
}

/// The result of a successful command. `R` is the result of its visitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Executed<R> {
    /// A document was read.
    Read(R),
    /// The metadata.
    Meta(Meta),
    /// A document was changed.
    Mutated(Mutated),
    /// A document was changed and read.
    Touched(Mutated, R),
    /// A counter was changed to this value.
    Counter(Mutated, u64),
    /// A document was unlocked.
    Unlocked,
    /// The persistence state of the key, and its CAS.
    Observed(ObserveState, Cas),
    /// The statistics of the key.
    Key(Box<KeyFigures>),
}

/// The accessors return `None` if the result is of another kind.
impl<R> Executed<R> {
    /// Returns the visitor's result for a document that was read.
    pub fn into_read(self) -> Option<R> {
        match self {
            Self::Read(read) => Some(read),
            _ => None,
        }
    }

    /// Returns the metadata.
    pub fn into_meta(self) -> Option<Meta> {
        match self {
            Self::Meta(meta) => Some(meta),
            _ => None,
        }
    }

    /// Returns the mutation and the visitor's result.
    pub fn into_touched(self) -> Option<(Mutated, R)> {
        match self {
            Self::Touched(mutated, shown) => Some((mutated, shown)),
            _ => None,
        }
    }

    /// Returns the mutation of a counter and its value.
    pub fn into_counter(self) -> Option<(Mutated, u64)> {
        match self {
            Self::Counter(mutated, number) => Some((mutated, number)),
            _ => None,
        }
    }

    /// Returns `Some` if a document was unlocked.
    pub fn into_unlocked(self) -> Option<()> {
        matches!(self, Self::Unlocked).then_some(())
    }

    /// Returns the persistence state of the key, and its CAS.
    pub fn into_observed(self) -> Option<(ObserveState, Cas)> {
        match self {
            Self::Observed(state, cas) => Some((state, cas)),
            _ => None,
        }
    }

    /// Returns the statistics of the key.
    pub fn into_key(self) -> Option<KeyFigures> {
        match self {
            Self::Key(figures) => Some(*figures),
            _ => None,
        }
    }
}

impl DocOp<'_> {
    /// Returns the command with owned arguments.
    #[must_use]
    pub fn into_owned(self) -> DocOp<'static> {
        match self {
            Self::Get => DocOp::Get,
            Self::GetWithTombstones => DocOp::GetWithTombstones,
            Self::GetReplica => DocOp::GetReplica,
            Self::GetReplicaWithTombstones => DocOp::GetReplicaWithTombstones,
            Self::GetMeta => DocOp::GetMeta,
            Self::GetAndLock { secs } => DocOp::GetAndLock { secs },
            Self::Unlock(cas) => DocOp::Unlock(cas),
            Self::Observe => DocOp::Observe,
            Self::KeyFigures => DocOp::KeyFigures,
            Self::Store {
                mode,
                value,
                flags,
                expiry,
            } => DocOp::Store {
                mode,
                value: value.into_owned(),
                flags,
                expiry,
            },
            Self::Concat { mode, bytes } => DocOp::Concat {
                mode,
                bytes: Cow::Owned(bytes.into_owned()),
            },
            Self::Delete => DocOp::Delete,
            Self::WithMeta {
                args,
                value,
                patches,
            } => DocOp::WithMeta {
                args,
                value: value.into_owned(),
                patches: Cow::Owned(patches.into_owned()),
            },
            Self::Modify { change, expiry } => DocOp::Modify { change, expiry },
            Self::Arithmetic(op) => DocOp::Arithmetic(op),
            Self::Touch { expiry } => DocOp::Touch { expiry },
            Self::GetAndTouch { expiry } => DocOp::GetAndTouch { expiry },
        }
    }

    /// Returns the bytes of the value in the arguments.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Store { value, .. } | Self::WithMeta { value, .. } => value.bytes.len(),
            Self::Concat { bytes, .. } => bytes.len(),
            Self::Modify { change, .. } => change.bytes(),
            _ => 0,
        }
    }

    /// Returns whether the command needs only the metadata of the existing document, never its value.
    #[must_use]
    pub fn is_of_metadata(&self) -> bool {
        match self {
            Self::GetMeta
            | Self::Unlock(_)
            | Self::Observe
            | Self::KeyFigures
            | Self::Store { .. }
            | Self::Delete
            | Self::WithMeta { .. } => true,
            Self::Get
            | Self::GetWithTombstones
            | Self::GetReplica
            | Self::GetReplicaWithTombstones
            | Self::GetAndLock { .. }
            | Self::Concat { .. }
            | Self::Modify { .. }
            | Self::Arithmetic(_)
            | Self::Touch { .. }
            | Self::GetAndTouch { .. } => false,
        }
    }

    /// Returns the completion of a failed command.
    #[must_use]
    pub fn failed(&self, status: Status) -> Completion {
        let result = status;
        match self {
            Self::Get
            | Self::GetWithTombstones
            | Self::GetReplica
            | Self::GetReplicaWithTombstones
            | Self::GetAndLock { .. } => Completion::Read {
                result: Err(result),
            },
            Self::GetMeta => Completion::Meta {
                result: Err(result),
            },
            Self::Observe => Completion::Observed {
                result: Err(result),
            },
            Self::KeyFigures => Completion::Key {
                result: Err(result),
            },
            Self::Unlock(_) => Completion::Persisted(Err(result)),
            Self::Arithmetic(_) => Completion::Counter {
                result: Err(result),
            },
            Self::Store { .. }
            | Self::Concat { .. }
            | Self::Delete
            | Self::WithMeta { .. }
            | Self::Modify { .. }
            | Self::Touch { .. }
            | Self::GetAndTouch { .. } => Completion::SyncWrite {
                result: Err(result),
                item: None,
            },
        }
    }
}

impl Step<'_> {
    /// Runs a command. `read` receives a document that the command reads.
    ///
    /// # Errors
    /// The status for the client.
    pub fn execute<R>(
        &mut self,
        write: &StepWrite<'_>,
        op: &DocOp<'_>,
        read: impl FnOnce(DocumentRef<'_>) -> R,
    ) -> Result<StepOutcome<Executed<R>>, Status> {
        let key = write.key;
        Ok(match op {
            DocOp::Get
            | DocOp::GetWithTombstones
            | DocOp::GetReplica
            | DocOp::GetReplicaWithTombstones => self.read(key, op, read)?.map(Executed::Read),
            DocOp::GetAndLock { secs } => self
                .get_and_lock(key, *secs, write.prebuilt, read)?
                .map(Executed::Read),
            DocOp::GetMeta => self.get_meta(key)?.map(Executed::Meta),
            DocOp::Unlock(cas) => self.unlock(key, *cas)?.map(|()| Executed::Unlocked),
            DocOp::Observe => self
                .observe_key(key)?
                .map(|(state, cas)| Executed::Observed(state, cas)),
            DocOp::KeyFigures => self
                .key_figures(key)?
                .map(|figures| Executed::Key(Box::new(figures))),
            DocOp::Arithmetic(op) => self
                .arithmetic(write, op)?
                .map(|(mutated, number)| Executed::Counter(mutated, number)),
            DocOp::GetAndTouch { expiry } => self
                .get_and_touch(write, *expiry, read)?
                .map(|(mutated, shown)| Executed::Touched(mutated, shown)),
            DocOp::Store { .. }
            | DocOp::Concat { .. }
            | DocOp::Delete
            | DocOp::WithMeta { .. }
            | DocOp::Modify { .. }
            | DocOp::Touch { .. } => self.mutate(write, op, None)?.map(Executed::Mutated),
        })
    }

    /// Runs a command that reads a document, and passes the document to `read`.
    ///
    /// # Errors
    /// The status for the client.
    #[inline]
    pub fn read<R>(
        &mut self,
        key: &DocKey,
        op: &DocOp<'_>,
        read: impl FnOnce(DocumentRef<'_>) -> R,
    ) -> Result<StepOutcome<R>, Status> {
        match op {
            DocOp::GetWithTombstones => self.get_with_tombstones(key, read),
            DocOp::GetReplica => self.get_replica(key, read),
            DocOp::GetReplicaWithTombstones => self.get_replica_with_tombstones(key, read),
            _ => self.get(key, read),
        }
    }

    /// Runs a command that changes a document and returns no document. `precomputed` is a change equivalent to the
    /// store, concat or modification, a part of which was computed before the vBucket was locked.
    ///
    /// # Errors
    /// The status for the client.
    #[inline]
    pub fn mutate(
        &mut self,
        write: &StepWrite<'_>,
        op: &DocOp<'_>,
        precomputed: Option<&dyn Modify>,
    ) -> Result<StepOutcome<Mutated>, Status> {
        match (op, precomputed) {
            (DocOp::Store { expiry, .. } | DocOp::Modify { expiry, .. }, Some(change)) => {
                self.modify(write, *expiry, change)
            }
            (DocOp::Concat { .. }, Some(change)) => self.concat_with(write, change),
            (DocOp::Concat { mode, bytes }, None) => self.concat(write, *mode, bytes),
            (DocOp::Modify { change, expiry }, None) => self.modify(write, *expiry, &**change),
            (
                DocOp::Store {
                    mode,
                    value,
                    flags,
                    expiry,
                },
                None,
            ) => self.store(write, *mode, value, *flags, *expiry),
            (
                DocOp::WithMeta {
                    args,
                    value,
                    patches,
                },
                _,
            ) => self.write_with_meta(write, args, value, patches),
            (DocOp::Touch { expiry }, _) => self.touch(write, *expiry),
            _ => self.delete(write),
        }
    }

    /// Resumes a command that has waited. Returns its completion when it has ended, successfully or not.
    pub fn resume(&mut self, write: &StepWrite<'_>, op: &DocOp<'_>) -> StepOutcome<Completion> {
        let shown = |document: DocumentRef<'_>| (document.item.clone(), document.cas);
        match self.execute(write, op, shown) {
            Ok(outcome) => outcome.map(|done| self.completion(write, done)),
            Err(status) => StepOutcome::Done(op.failed(status)),
        }
    }

    fn completion(&self, write: &StepWrite<'_>, done: Executed<(Item, Cas)>) -> Completion {
        match done {
            Executed::Read(document) => Completion::Read {
                result: Ok(document),
            },
            Executed::Meta(meta) => Completion::Meta { result: Ok(meta) },
            Executed::Mutated(mutated) => {
                let (documents, key) = (&self.store.documents, write.key.as_bytes());
                Completion::SyncWrite {
                    result: Ok(mutated),
                    item: documents.find(documents.hash(key), key).cloned(),
                }
            }
            Executed::Touched(mutated, (item, _)) => Completion::SyncWrite {
                result: Ok(mutated),
                item: Some(item),
            },
            Executed::Counter(mutated, number) => Completion::Counter {
                result: Ok((mutated, number)),
            },
            Executed::Unlocked => Completion::Persisted(Ok(())),
            Executed::Observed(state, cas) => Completion::Observed {
                result: Ok((state, cas)),
            },
            // The value was read for the comparison only.
            Executed::Key(figures) => Completion::Key {
                result: Ok(KeyFigures {
                    is_resident: false,
                    ..*figures
                }),
            },
        }
    }
}
