//! The commands that wait for the disk, and how they go on.

use crate::residency::Residency;
use kedge_bucket_core::Counter;
use kedge_bucket_core::Read;
use kedge_bucket_core::{Ctx, Role};
use kedge_types::{Cas, Datatype, DocKey, Durability, Expiry, Now, Status};
use kedge_vbucket::{
    Arithmetic, Completion, ConcatMode, Cookie, Given, KeyFigures, Modify, Mutated, NewValue,
    Outcome, Patches, StoreMode, VBucket, Write,
};
use std::borrow::Cow;
use std::sync::Arc;

/// What a waiting command does, with its own copy of what the client sent.
#[derive(Debug)]
pub enum Op {
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
    /// Locks a document and reads it.
    GetAndLock {
        /// Duration of the lock, in seconds; 0 for the default.
        secs: u32,
    },
    /// With the CAS of the lock.
    Unlock(Cas),
    /// Asks whether the last change is on disk.
    Observe,
    /// What statistics tell of the key, and how the file agrees if that is asked for.
    Key {
        /// The file is read in any case, and compared to memory.
        validate: bool,
    },
    /// Stores a value.
    Store {
        /// Condition on the document, or the end that bytes are put to.
        mode: StoreMode,
        /// The value.
        bytes: Box<[u8]>,
        /// The datatype of the value.
        datatype: Datatype,
        /// The client's own 32 bits.
        flags: u32,
        /// The expiry.
        expiry: Expiry,
    },
    /// Puts bytes in front of or behind a value.
    Concat {
        /// Condition on the document, or the end that bytes are put to.
        mode: ConcatMode,
        /// The value.
        bytes: Box<[u8]>,
    },
    /// Deletes a document.
    Delete,
    /// Writes with metadata of its own.
    WithMeta {
        /// The metadata.
        given: Given,
        /// The value.
        bytes: Box<[u8]>,
        /// The datatype of the value.
        datatype: Datatype,
        /// Changes of the value once its version is known.
        patches: Box<Patches>,
    },
    /// Changes parts of a document.
    Modify {
        /// The change.
        change: Arc<dyn Modify>,
        /// The expiry.
        expiry: Expiry,
    },
    /// Changes a counter.
    Arithmetic(Arithmetic),
    /// Changes an expiry.
    Touch {
        /// The expiry.
        expiry: Expiry,
    },
    /// Changes an expiry, and reads the document.
    GetAndTouch {
        /// The expiry.
        expiry: Expiry,
    },
    /// Keys from the command's own on, at most so many.
    Keys {
        /// Largest number of keys.
        count: u32,
    },
    /// Any document of the collection of the command's key.
    Random {
        /// A random number.
        random: u64,
    },
}

/// A command that waits.
#[derive(Debug)]
pub struct PendingOp {
    /// The document.
    pub key: DocKey,
    /// The cookie of its completion.
    pub cookie: Cookie,
    /// The CAS that the document must have; 0 for any.
    pub cas: Cas,
    /// The level of a SyncWrite.
    pub durability: Option<Durability>,
    /// The CAS that the document gets; 0 for the next of the vBucket's clock.
    pub new_cas: Cas,
    /// Whether the expiry of the document stays.
    pub preserve_ttl: bool,
    /// The operation.
    pub op: Op,
    /// When it was queued.
    pub since_ns: u64,
    /// How often it was read for, and something newer was there.
    pub attempts: u32,
}

/// How far a command came that ran again.
#[derive(Debug)]
pub enum ResumeResult {
    /// To its end.
    Ended(Completion),
    /// It waits for its SyncWrite.
    Parked,
    /// It needs the disk again.
    Fetch,
}

impl Op {
    /// Bytes of the value that it brought.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Store { bytes, .. }
            | Self::Concat { bytes, .. }
            | Self::WithMeta { bytes, .. } => bytes.len(),
            Self::Modify { change, .. } => change.bytes(),
            _ => 0,
        }
    }

    /// What it needs its vBucket to be.
    pub fn role(&self) -> Role {
        match self {
            Self::GetReplica | Self::GetReplicaWithTombstones => Role::Replica,
            Self::Observe | Self::Key { .. } => Role::Any,
            _ => Role::Active,
        }
    }

    /// Whether it asks the file itself, and not a document that is brought into memory for it.
    pub fn asks_the_file(&self) -> bool {
        matches!(
            self,
            Self::Keys { .. } | Self::Random { .. } | Self::Key { validate: true }
        )
    }

    /// Whether it asks for no value.
    pub fn is_of_metadata(&self) -> bool {
        !matches!(
            self,
            Self::Get
                | Self::GetWithTombstones
                | Self::Modify { .. }
                | Self::GetReplica
                | Self::GetReplicaWithTombstones
                | Self::GetAndLock { .. }
                | Self::Concat { .. }
                | Self::Arithmetic(_)
                | Self::Touch { .. }
                | Self::GetAndTouch { .. }
        )
    }

    /// The end of a command that failed.
    pub fn failed(&self, status: Status) -> Completion {
        let result = status;
        match self {
            Self::Get
            | Self::GetWithTombstones
            | Self::GetReplica
            | Self::GetReplicaWithTombstones
            | Self::GetAndLock { .. }
            | Self::Random { .. } => Completion::Read {
                result: Err(result),
            },
            Self::GetMeta => Completion::Meta {
                result: Err(result),
            },
            Self::Observe => Completion::Observed {
                result: Err(result),
            },
            Self::Key { .. } => Completion::Key {
                result: Err(result),
            },
            Self::Unlock(_) => Completion::Persisted(Err(result)),
            Self::Arithmetic(_) => Completion::Counter {
                result: Err(result),
            },
            Self::Keys { .. } => Completion::Keys {
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

    /// What is counted when it found its document, and when it did not.
    fn counters(&self) -> Option<(Counter, Counter)> {
        Some(match self {
            Self::Get => (Counter::GetHits, Counter::GetMisses),
            Self::Delete => (Counter::DeleteHits, Counter::DeleteMisses),
            Self::Touch { .. } | Self::GetAndTouch { .. } => {
                (Counter::TouchHits, Counter::TouchMisses)
            }
            Self::Arithmetic(op) if op.negative => (Counter::DecrHits, Counter::DecrMisses),
            Self::Arithmetic(_) => (Counter::IncrHits, Counter::IncrMisses),
            _ => return None,
        })
    }
}

impl PendingOp {
    /// Whether it waits for the disk when it is parked as a SyncWrite.
    pub fn needs_disk(&self) -> bool {
        self.durability
            .is_some_and(|durability| durability.level.needs_persistence())
    }

    /// One that only reads.
    pub fn read(ctx: Ctx, wanted: &Read<'_>, op: Op) -> Self {
        Self {
            key: *wanted.key,
            cookie: wanted.cookie,
            cas: Cas(0),
            durability: None,
            new_cas: Cas(0),
            preserve_ttl: false,
            op,
            since_ns: ctx.now.mono_ns,
            attempts: 0,
        }
    }

    fn write(&self) -> Write<'_> {
        Write {
            key: &self.key,
            cas: self.cas,
            durability: self.durability,
            new_cas: self.new_cas,
            preserve_ttl: self.preserve_ttl,
            cookie: self.cookie,
            ahead: None,
        }
    }

    /// Runs the step again.
    pub fn run(&self, vbucket: &mut VBucket, now: Now) -> ResumeResult {
        let (key, write) = (&self.key, self.write());
        match &self.op {
            Op::Get => self.ended(
                vbucket
                    .at(now)
                    .get(key, |document| (document.item.clone(), document.cas)),
                |document| Completion::Read {
                    result: Ok(document),
                },
            ),
            Op::GetWithTombstones => self.ended(
                vbucket
                    .at(now)
                    .get_with_tombstones(key, |document| (document.item.clone(), document.cas)),
                |document| Completion::Read {
                    result: Ok(document),
                },
            ),
            Op::GetReplica => self.ended(
                vbucket
                    .at(now)
                    .get_replica(key, |document| (document.item.clone(), document.cas)),
                |document| Completion::Read {
                    result: Ok(document),
                },
            ),
            Op::GetReplicaWithTombstones => self.ended(
                vbucket
                    .at(now)
                    .get_replica_with_tombstones(key, |document| {
                        (document.item.clone(), document.cas)
                    }),
                |document| Completion::Read {
                    result: Ok(document),
                },
            ),
            Op::GetAndLock { secs } => self.ended(
                vbucket.at(now).get_and_lock(key, *secs, None, |document| {
                    (document.item.clone(), document.cas)
                }),
                |document| Completion::Read {
                    result: Ok(document),
                },
            ),
            Op::Unlock(cas) => self.ended(vbucket.at(now).unlock(key, *cas), |()| {
                Completion::Persisted(Ok(()))
            }),
            Op::GetMeta => self.ended(vbucket.at(now).get_meta(key), |meta| Completion::Meta {
                result: Ok(meta),
            }),
            Op::Observe => self.ended(vbucket.at(now).observe_key(key), |observed| {
                Completion::Observed {
                    result: Ok(observed),
                }
            }),
            Op::Key { .. } => self.ended(vbucket.at(now).key_figures(key), |figures| {
                // It was read for this.
                let figures = KeyFigures {
                    is_resident: false,
                    ..figures
                };
                Completion::Key {
                    result: Ok(figures),
                }
            }),
            Op::Arithmetic(op) => self.ended(vbucket.at(now).arithmetic(&write, op), |changed| {
                Completion::Counter {
                    result: Ok(changed),
                }
            }),
            Op::GetAndTouch { expiry } => self.ended(
                vbucket
                    .at(now)
                    .get_and_touch(&write, *expiry, |document, mutated| {
                        (mutated, document.item.clone())
                    }),
                |(mutated, item)| Completion::SyncWrite {
                    result: Ok(mutated),
                    item: Some(item),
                },
            ),
            Op::Store { .. }
            | Op::Concat { .. }
            | Op::Delete
            | Op::WithMeta { .. }
            | Op::Modify { .. }
            | Op::Touch { .. } => {
                let result = self.mutate(vbucket, now);
                self.ended(result, |mutated| Completion::SyncWrite {
                    result: Ok(mutated),
                    item: find(vbucket, key),
                })
            }
            // These ask the file for keys, see `keys`.
            Op::Keys { .. } | Op::Random { .. } => ResumeResult::Fetch,
        }
    }

    fn mutate(&self, vbucket: &mut VBucket, now: Now) -> Result<Outcome<Mutated>, Status> {
        let write = self.write();
        match &self.op {
            Op::Store {
                mode,
                bytes,
                datatype,
                flags,
                expiry,
            } => {
                let value = NewValue {
                    bytes: Cow::Borrowed(bytes),
                    datatype: *datatype,
                };
                vbucket
                    .at(now)
                    .store(&write, *mode, &value, *flags, *expiry)
            }
            Op::Concat { mode, bytes } => vbucket.at(now).concat(&write, *mode, bytes),
            Op::Touch { expiry } => vbucket.at(now).touch(&write, *expiry),
            Op::WithMeta {
                given,
                bytes,
                datatype,
                patches,
            } => {
                let value = NewValue {
                    bytes: Cow::Borrowed(bytes),
                    datatype: *datatype,
                };
                vbucket
                    .at(now)
                    .write_with_meta(&write, given, &value, patches)
            }
            Op::Modify { change, expiry } => vbucket.at(now).modify(&write, *expiry, &**change),
            _ => vbucket.at(now).delete(&write),
        }
    }

    fn ended<R>(
        &self,
        result: Result<Outcome<R>, Status>,
        completion: impl FnOnce(R) -> Completion,
    ) -> ResumeResult {
        match result {
            Ok(Outcome::Done(done)) => ResumeResult::Ended(completion(done)),
            Ok(Outcome::Parked) => ResumeResult::Parked,
            Ok(Outcome::Fetch) => ResumeResult::Fetch,
            Err(status) => ResumeResult::Ended(self.op.failed(status)),
        }
    }
}

fn find(vbucket: &VBucket, key: &DocKey) -> Option<kedge_vbucket::Item> {
    let table = vbucket.table();
    table
        .find(table.hash(key.as_bytes()), key.as_bytes())
        .cloned()
}

impl Residency {
    /// Counts what is known of a command only now.
    pub fn count_fetched(&self, pending: &PendingOp, completion: &Completion) {
        let status = match completion {
            Completion::SyncWrite { result, .. } => result.as_ref().err(),
            Completion::Counter { result } => result.as_ref().err(),
            Completion::Read { result } => result.as_ref().err(),
            Completion::Meta { result } => result.as_ref().err(),
            Completion::Persisted(result) => result.as_ref().err(),
            Completion::Observed { .. }
            | Completion::Key { .. }
            | Completion::Keys { .. }
            | Completion::ScanMade { .. }
            | Completion::Scanned { .. } => None,
        };
        if let Some((hit, miss)) = pending.op.counters() {
            match status {
                None => self.core.counters.add_shared(hit, 1),
                Some(Status::KeyNotFound) => self.core.counters.add_shared(miss, 1),
                Some(_) => {}
            }
        }
        if let Op::WithMeta { given, .. } = &pending.op
            && status == Some(&Status::KeyExists)
        {
            self.core.counters.add_shared(given_counters(given).1, 1);
        }
        if !pending.cas.is_none() {
            match status {
                None => self.core.counters.add_shared(Counter::CasHits, 1),
                Some(Status::KeyNotFound) => self.core.counters.add_shared(Counter::CasMisses, 1),
                Some(Status::KeyExists) => self.core.counters.add_shared(Counter::CasBadval, 1),
                Some(_) => {}
            }
        }
        if status == Some(&Status::Locked) {
            self.core.counters.add_shared(Counter::LockErrors, 1);
        }
    }
}

/// Returns the counter of a write with metadata, and that of one which lost.
#[must_use]
pub fn given_counters(given: &Given) -> (Counter, Counter) {
    match given.deleted {
        None => (Counter::SetWithMeta, Counter::SetWithMetaLost),
        Some(_) => (Counter::DeleteWithMeta, Counter::DeleteWithMetaLost),
    }
}
