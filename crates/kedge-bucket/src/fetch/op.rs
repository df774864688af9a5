//! The commands that wait for the disk, and how they go on.

use crate::bucket::Bucket;
use crate::documents::Read;
use crate::with_meta::given_counters;
use kedge_bucket_core::Counter;
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
pub(crate) enum Op {
    Get,
    GetWithTombstones,
    GetReplica,
    GetReplicaWithTombstones,
    GetMeta,
    GetAndLock {
        secs: u32,
    },
    /// With the CAS of the lock.
    Unlock(Cas),
    Observe,
    /// What statistics tell of the key, and how the file agrees if that is asked for.
    Key {
        validate: bool,
    },
    Store {
        mode: StoreMode,
        bytes: Box<[u8]>,
        datatype: Datatype,
        flags: u32,
        expiry: Expiry,
    },
    Concat {
        mode: ConcatMode,
        bytes: Box<[u8]>,
    },
    Delete,
    WithMeta {
        given: Given,
        bytes: Box<[u8]>,
        datatype: Datatype,
        patches: Box<Patches>,
    },
    Modify {
        change: Arc<dyn Modify>,
        expiry: Expiry,
    },
    Arithmetic(Arithmetic),
    Touch {
        expiry: Expiry,
    },
    GetAndTouch {
        expiry: Expiry,
    },
    /// Keys from the command's own on, at most so many.
    Keys {
        count: u32,
    },
    /// Any document of the collection of the command's key.
    Random {
        random: u64,
    },
}

/// A command that waits.
#[derive(Debug)]
pub(crate) struct PendingOp {
    pub(crate) key: DocKey,
    pub(crate) cookie: Cookie,
    pub(crate) cas: Cas,
    pub(crate) durability: Option<Durability>,
    pub(crate) new_cas: Cas,
    pub(crate) preserve_ttl: bool,
    pub(crate) op: Op,
    /// When it was queued.
    pub(crate) since_ns: u64,
    /// How often it was read for, and something newer was there.
    pub(crate) attempts: u32,
}

/// How far a command came that ran again.
#[derive(Debug)]
pub(crate) enum ResumeResult {
    /// To its end.
    Ended(Completion),
    /// It waits for its SyncWrite.
    Parked,
    /// It needs the disk again.
    Fetch,
}

impl Op {
    /// Bytes of the value that it brought.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Store { bytes, .. }
            | Self::Concat { bytes, .. }
            | Self::WithMeta { bytes, .. } => bytes.len(),
            Self::Modify { change, .. } => change.bytes(),
            _ => 0,
        }
    }

    /// What it needs its vBucket to be.
    pub(crate) fn role(&self) -> Role {
        match self {
            Self::GetReplica | Self::GetReplicaWithTombstones => Role::Replica,
            Self::Observe | Self::Key { .. } => Role::Any,
            _ => Role::Active,
        }
    }

    /// Whether it asks the file itself, and not a document that is brought into memory for it.
    pub(crate) fn asks_the_file(&self) -> bool {
        matches!(
            self,
            Self::Keys { .. } | Self::Random { .. } | Self::Key { validate: true }
        )
    }

    /// Whether it asks for no value.
    pub(crate) fn is_of_metadata(&self) -> bool {
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
    pub(crate) fn failed(&self, status: Status) -> Completion {
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
    pub(crate) fn needs_disk(&self) -> bool {
        self.durability
            .is_some_and(|durability| durability.level.needs_persistence())
    }

    /// One that only reads.
    pub(crate) fn read(ctx: Ctx, wanted: &Read<'_>, op: Op) -> Self {
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
    pub(crate) fn run(&self, vbucket: &mut VBucket, now: Now) -> ResumeResult {
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

impl Bucket {
    /// Counts what is known of a command only now.
    pub(crate) fn count_fetched(&self, pending: &PendingOp, completion: &Completion) {
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
