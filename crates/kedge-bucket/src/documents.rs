//! Commands on documents.

use crate::Arithmetic;
use crate::bucket::{Bucket, Ctx, Role, Write, sync_write_timing};
use crate::counters::Counter;
use crate::fetch::{Op, Pending};
use crate::held::Room;
use crate::outcome::Outcome;
use kedge_types::{Cas, Datatype, DocKey, Durability, Status, VbId};
use kedge_vbucket::{
    ConcatMode, Cookie, Document, ITEM_OVERHEAD_BYTES, ItemMeta, Meta, MinRatio, Mutated,
    Outcome as StepOutcome, SLOT_BYTES, StoreMode, VBucket,
};
use std::sync::atomic::Ordering;

/// Most digits of a counter.
const COUNTER_BYTES: usize = 20;

/// What is counted when a write finds its document, and when it does not.
type Hits = (Counter, Counter);

/// What all reads share.
#[derive(Clone, Copy, Debug)]
pub struct Read<'a> {
    /// The vBucket.
    pub vb: VbId,
    /// The document.
    pub key: &'a DocKey,
    /// Who is told when the read was parked, as the document must come from the disk.
    pub cookie: Cookie,
}

/// A value that is to be stored.
#[derive(Clone, Copy, Debug)]
pub struct Storing<'a> {
    /// Whether the document may be there.
    pub mode: StoreMode,
    /// The value.
    pub value: &'a [u8],
    /// What the client says of it.
    pub datatype: Datatype,
    /// The client's own 32 bits.
    pub flags: u32,
    /// The number of the wire.
    pub expiry: u32,
}

/// What is told of a write that was done.
pub(crate) trait Told {
    /// What every client is told.
    fn mutated(&self) -> Mutated;
}

impl Told for Mutated {
    fn mutated(&self) -> Mutated {
        *self
    }
}

impl Told for (Mutated, ItemMeta) {
    fn mutated(&self) -> Mutated {
        self.0
    }
}

impl Bucket {
    /// Shows a document to `read`, which runs under the vBucket's lock: copy a small value there, clone the item of a
    /// large one. When it was parked, the completion has the document.
    ///
    /// # Errors
    /// `KeyNotFound`, `NotMyVbucket`, `TemporaryFailure` while loading.
    pub fn get<R>(
        &self,
        ctx: Ctx,
        wanted: &Read<'_>,
        read: impl FnOnce(Document<'_>) -> R,
    ) -> Result<Outcome<R>, Status> {
        let result = self.step(ctx.now, wanted.vb, |vbucket| {
            vbucket.get(ctx.now, wanted.key, read)
        });
        let result = match result {
            Ok(result) => result,
            Err(status) => return self.or_await(ctx, wanted, Op::Get, status),
        };
        self.count(ctx, Counter::CmdGet);
        match result {
            Ok(StepOutcome::Fetch) => return self.fetch(ctx, wanted, Op::Get),
            Ok(_) => self.count(ctx, Counter::GetHits),
            Err(_) => self.count(ctx, Counter::GetMisses),
        }
        self.or_fetch(ctx, wanted, Op::Get, result?)
    }

    /// Shows a replica's document to `read`, which may be behind that of the active; see [`Bucket::get`].
    ///
    /// # Errors
    /// `KeyNotFound`; `NotMyVbucket` unless the vBucket is a replica; `TemporaryFailure` while loading.
    pub fn get_replica<R>(
        &self,
        ctx: Ctx,
        wanted: &Read<'_>,
        read: impl FnOnce(Document<'_>) -> R,
    ) -> Result<Outcome<R>, Status> {
        let outcome = self.step_as(ctx.now, wanted.vb, Role::Replica, |vbucket| {
            vbucket.get_replica(ctx.now, wanted.key, read)
        })??;
        self.or_fetch(ctx, wanted, Op::GetReplica, outcome)
    }

    /// What a step came to that only reads; its command waits if it needs the disk.
    pub(crate) fn or_fetch<R>(
        &self,
        ctx: Ctx,
        wanted: &Read<'_>,
        op: Op,
        outcome: StepOutcome<R>,
    ) -> Result<Outcome<R>, Status> {
        match outcome {
            StepOutcome::Done(done) => Ok(Outcome::Done(done)),
            StepOutcome::Parked => Ok(Outcome::Parked),
            StepOutcome::Fetch => self.fetch(ctx, wanted, op),
        }
    }

    /// The metadata of a document or tombstone.
    ///
    /// # Errors
    /// As [`Bucket::get`].
    pub fn get_meta(&self, ctx: Ctx, wanted: &Read<'_>) -> Result<Outcome<Meta>, Status> {
        let outcome = self.step(ctx.now, wanted.vb, |vbucket| {
            vbucket.get_meta(ctx.now, wanted.key)
        });
        match outcome {
            Ok(outcome) => self.or_fetch(ctx, wanted, Op::GetMeta, outcome?),
            Err(status) => self.or_await(ctx, wanted, Op::GetMeta, status),
        }
    }

    /// Stores a value. `datatype` is what the client says of it; whether it is JSON is found out here. `expiry` is the
    /// number of the wire.
    ///
    /// # Errors
    /// `KeyExists`, `KeyNotFound`, `Locked`, `TooBig`, `Invalid`, `SyncWriteInProgress`, `NotMyVbucket`; `NoMemory`;
    /// `TemporaryFailure` when nothing can leave memory to make room. A write for which room is being made is parked.
    #[expect(
        clippy::too_many_arguments,
        reason = "the fields of the command, once each"
    )]
    pub fn store(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        mode: StoreMode,
        value: &[u8],
        datatype: Datatype,
        flags: u32,
        expiry: u32,
    ) -> Result<Outcome<Mutated>, Status> {
        let storing = Storing {
            mode,
            value,
            datatype,
            flags,
            expiry,
        };
        self.store_telling(ctx, write, &storing, |_, mutated| mutated)
    }

    /// [`Bucket::store`] that gives what `tell` makes of it. When it was parked, the completion has the document.
    pub(crate) fn store_telling<R: Told>(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        storing: &Storing<'_>,
        tell: impl FnOnce(&VBucket, Mutated) -> R,
    ) -> Result<Outcome<R>, Status> {
        let Storing {
            mode,
            value,
            datatype,
            flags,
            expiry,
        } = *storing;
        let value = self.check_value(ctx, value, datatype, self.hot.min_ratio())?;
        let room = self.admit(ctx, write.key.as_bytes().len() + value.bytes.len())?;
        let expiry = self.expiry(ctx.now, write.key, expiry);
        self.count(ctx, Counter::CmdSet);
        let op = || Op::Store {
            mode,
            bytes: value.bytes.as_ref().into(),
            datatype: value.datatype,
            flags,
            expiry,
        };
        if let Room::Later(bytes) = room {
            return self.hold_write(ctx, write, bytes, op());
        }
        let result = self.write(ctx, write, None, op, |vbucket, inner| {
            let outcome = vbucket.store(ctx.now, inner, mode, &value, flags, expiry)?;
            Ok(outcome.map(|mutated| tell(vbucket, mutated)))
        });
        self.hold_back_if_behind(ctx, write, result)
    }

    /// Puts bytes in front of or behind a value.
    ///
    /// # Errors
    /// `NotStored` when there is none; else as [`Bucket::store`].
    pub fn concat(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        mode: ConcatMode,
        value: &[u8],
        datatype: Datatype,
    ) -> Result<Outcome<Mutated>, Status> {
        let value = self.check_value(ctx, value, datatype, MinRatio::NEVER)?;
        let room = self.admit(ctx, write.key.as_bytes().len() + value.bytes.len())?;
        self.count(ctx, Counter::CmdSet);
        let op = || Op::Concat {
            mode,
            bytes: value.bytes.as_ref().into(),
        };
        if let Room::Later(bytes) = room {
            return self.hold_write(ctx, write, bytes, op());
        }
        let result = self.write(ctx, write, None, op, |vbucket, inner| {
            vbucket.concat(ctx.now, inner, mode, &value.bytes)
        });
        self.hold_back_if_behind(ctx, write, result)
    }

    /// Deletes a document.
    ///
    /// # Errors
    /// As [`Bucket::store`]. Memory is no reason: deleting makes room.
    pub fn delete(&self, ctx: Ctx, write: &Write<'_>) -> Result<Outcome<Mutated>, Status> {
        self.refuse_on_full_disk()?;
        let hits = (Counter::DeleteHits, Counter::DeleteMisses);
        let op = || Op::Delete;
        self.write(ctx, write, Some(hits), op, |vbucket, inner| {
            vbucket.delete(ctx.now, inner)
        })
    }

    /// Adds to or subtracts from a counter and gives its new value.
    ///
    /// # Errors
    /// `KeyNotFound`, `DeltaBadValue`; else as [`Bucket::store`].
    pub fn arithmetic(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        op: Arithmetic,
    ) -> Result<Outcome<(Mutated, u64)>, Status> {
        let room = self.admit(ctx, write.key.as_bytes().len() + COUNTER_BYTES)?;
        let Arithmetic {
            negative,
            delta,
            initial,
            expiry,
        } = op;
        let op = kedge_vbucket::Arithmetic {
            negative,
            delta,
            initial,
            expiry: self.expiry(ctx.now, write.key, expiry),
        };
        if let Room::Later(bytes) = room {
            return self.hold_write(ctx, write, bytes, Op::Arithmetic(op));
        }
        let hits = if negative {
            (Counter::DecrHits, Counter::DecrMisses)
        } else {
            (Counter::IncrHits, Counter::IncrMisses)
        };
        let waiting = || Op::Arithmetic(op);
        self.write(ctx, write, Some(hits), waiting, |vbucket, inner| {
            vbucket.arithmetic(ctx.now, inner, &op)
        })
    }

    /// Gives a document another expiry, the number of the wire.
    ///
    /// # Errors
    /// As [`Bucket::store`].
    pub fn touch(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        expiry: u32,
    ) -> Result<Outcome<Mutated>, Status> {
        self.refuse_on_full_disk()?;
        let expiry = self.expiry(ctx.now, write.key, expiry);
        self.count(ctx, Counter::CmdTouch);
        let op = || Op::Touch { expiry };
        let hits = (Counter::TouchHits, Counter::TouchMisses);
        self.write(ctx, write, Some(hits), op, |vbucket, inner| {
            vbucket.touch(ctx.now, inner, expiry)
        })
    }

    /// [`Bucket::touch`], then shows the document to `read`. When it was parked, the completion has the document.
    ///
    /// # Errors
    /// As [`Bucket::touch`].
    pub fn get_and_touch<R>(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        expiry: u32,
        read: impl FnOnce(Document<'_>, Mutated) -> R,
    ) -> Result<Outcome<R>, Status> {
        self.refuse_on_full_disk()?;
        let expiry = self.expiry(ctx.now, write.key, expiry);
        self.count(ctx, Counter::CmdTouch);
        let op = || Op::GetAndTouch { expiry };
        let hits = (Counter::TouchHits, Counter::TouchMisses);
        self.write(ctx, write, Some(hits), op, |vbucket, inner| {
            vbucket.get_and_touch(ctx.now, inner, expiry, read)
        })
    }

    /// Locks a document for `secs` seconds (0: the default) and shows it to `read`, with the CAS that opens the lock.
    ///
    /// # Errors
    /// `KeyNotFound`, `Locked`, `SyncWriteInProgress`, `NotMyVbucket`, `TemporaryFailure` while loading.
    pub fn get_and_lock<R>(
        &self,
        ctx: Ctx,
        wanted: &Read<'_>,
        secs: u32,
        read: impl FnOnce(Document<'_>) -> R,
    ) -> Result<Outcome<R>, Status> {
        self.count(ctx, Counter::CmdLock);
        let result = self.step(ctx.now, wanted.vb, |vbucket| {
            vbucket.get_and_lock(ctx.now, wanted.key, secs, read)
        });
        let op = Op::GetAndLock { secs };
        let result = match result {
            Ok(result) => result,
            Err(status) => return self.or_await(ctx, wanted, op, status),
        };
        self.count_error(ctx, result.as_ref().err());
        self.or_fetch(ctx, wanted, op, result?)
    }

    /// Opens a lock. What is locked does not leave memory: of a document that is on disk only the disk is asked whether
    /// it exists, as it is not locked. When it was parked, [`kedge_vbucket::Completion::Persisted`] says how it went.
    ///
    /// # Errors
    /// `KeyNotFound`, `NotLocked`, `Locked` with another CAS, `SyncWriteInProgress`.
    pub fn unlock(&self, ctx: Ctx, wanted: &Read<'_>, cas: Cas) -> Result<Outcome<()>, Status> {
        let result = self.step(ctx.now, wanted.vb, |vbucket| {
            vbucket.unlock(ctx.now, wanted.key, cas)
        });
        let result = match result {
            Ok(result) => result,
            Err(status) => return self.or_await(ctx, wanted, Op::Unlock(cas), status),
        };
        self.count_error(ctx, result.as_ref().err());
        self.or_fetch(ctx, wanted, Op::Unlock(cas), result?)
    }

    /// A write that succeeded is answered when it is on disk, if the disk is behind: so clients go no faster than it.
    pub(crate) fn hold_back_if_behind<R: Told>(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        result: Result<Outcome<R>, Status>,
    ) -> Result<Outcome<R>, Status> {
        let Ok(Outcome::Done(done)) = &result else {
            return result;
        };
        if !self.quota.is_behind() {
            return result;
        }
        let mutated = done.mutated();
        self.parked.fetch_add(1, Ordering::SeqCst);
        let outcome = self.step(ctx.now, write.vb, |vbucket| {
            vbucket.hold_back(ctx.now, write.key, mutated, write.cookie)
        });
        match outcome {
            Ok(StepOutcome::Parked) => {
                self.count(ctx, Counter::HeldBack);
                self.on_waiting(write.vb);
                self.on_parked();
                Ok(Outcome::Parked)
            }
            // It is on disk already, or the bucket ends: the write was done in any case.
            _ => {
                self.parked.fetch_sub(1, Ordering::Relaxed);
                result
            }
        }
    }

    /// What all writes do: raise the level to the bucket's minimum, run the step, count.
    pub(crate) fn write<R>(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        hits: Option<Hits>,
        op: impl FnOnce() -> Op,
        step: impl FnOnce(&mut VBucket, &kedge_vbucket::Write<'_>) -> Result<StepOutcome<R>, Status>,
    ) -> Result<Outcome<R>, Status> {
        let durability = self.hot.durability(write.durability);
        self.write_at(ctx, write, durability, hits, op, step)
    }

    /// [`Self::write`] at the level given.
    pub(crate) fn write_at<R>(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        durability: Option<Durability>,
        hits: Option<Hits>,
        op: impl FnOnce() -> Op,
        step: impl FnOnce(&mut VBucket, &kedge_vbucket::Write<'_>) -> Result<StepOutcome<R>, Status>,
    ) -> Result<Outcome<R>, Status> {
        let inner = kedge_vbucket::Write {
            key: write.key,
            cas: write.cas,
            durability,
            preserve_ttl: write.preserve_ttl,
            cookie: write.cookie,
        };
        if durability.is_some() {
            // Counted before the step: the completion may come before this thread goes on.
            self.parked.fetch_add(1, Ordering::SeqCst);
        }
        let not_now = || {
            if durability.is_some() {
                self.parked.fetch_sub(1, Ordering::Relaxed);
            }
        };
        let result = self.step(ctx.now, write.vb, |vbucket| step(vbucket, &inner));
        let result = match result {
            Ok(Ok(StepOutcome::Done(done))) => Ok(Outcome::Done(done)),
            Ok(Ok(StepOutcome::Parked)) => Ok(Outcome::Parked),
            Ok(Ok(StepOutcome::Fetch)) => {
                not_now();
                return self.fetch_for_write(ctx, write, durability, op());
            }
            Err(Status::NotMyVbucket) if self.is_pending(write.vb) => {
                not_now();
                return self.await_active(write.vb, pending(ctx, write, durability, op()));
            }
            Ok(Err(status)) | Err(status) => Err(status),
        };
        if let Some(durability) = durability {
            match &result {
                Ok(Outcome::Parked) => {
                    self.on_waiting(write.vb);
                    self.on_parked();
                }
                Ok(Outcome::Done(_)) => {
                    self.parked.fetch_sub(1, Ordering::Relaxed);
                    self.timings
                        .record_us(ctx.thread, sync_write_timing(durability.level), 0);
                }
                Err(_) => {
                    self.parked.fetch_sub(1, Ordering::Relaxed);
                }
            }
            if result.is_ok() {
                self.count(ctx, Counter::SyncWriteAccepted);
            }
        }
        self.count_hit(ctx, &result, hits);
        self.count_error(ctx, result.as_ref().err());
        if !write.cas.is_none() {
            match &result {
                Ok(_) => self.count(ctx, Counter::CasHits),
                Err(Status::KeyNotFound) => self.count(ctx, Counter::CasMisses),
                Err(Status::KeyExists) => self.count(ctx, Counter::CasBadval),
                Err(_) => {}
            }
        }
        result
    }

    /// A write whose step says that the disk is needed: it is parked. What becomes of it is counted then.
    fn fetch_for_write<R>(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        durability: Option<Durability>,
        op: Op,
    ) -> Result<Outcome<R>, Status> {
        self.park_for_fetch(write.vb, pending(ctx, write, durability, op))
    }

    /// A write for which memory has no room: it is parked. What becomes of it is counted when it is done.
    fn hold_write<R>(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        bytes: usize,
        op: Op,
    ) -> Result<Outcome<R>, Status> {
        let durability = self.hot.durability(write.durability);
        self.hold(ctx, write.vb, bytes, pending(ctx, write, durability, op))
    }

    pub(crate) fn admit(&self, ctx: Ctx, payload: usize) -> Result<Room, Status> {
        let room = self.room_for(payload + ITEM_OVERHEAD_BYTES + SLOT_BYTES);
        if room.is_err() {
            self.count(ctx, Counter::TmpOomErrors);
        }
        room
    }

    pub(crate) fn refuse_on_full_disk(&self) -> Result<(), Status> {
        if self.quota.disk_full() {
            Err(Status::TemporaryFailure)
        } else {
            Ok(())
        }
    }

    pub(crate) fn count(&self, ctx: Ctx, counter: Counter) {
        self.counters.add(ctx.thread, counter, 1);
    }

    fn count_hit<T>(&self, ctx: Ctx, result: &Result<T, Status>, hits: Option<Hits>) {
        let Some((hit, miss)) = hits else {
            return;
        };
        match result {
            Ok(_) => self.count(ctx, hit),
            Err(Status::KeyNotFound) => self.count(ctx, miss),
            Err(_) => {}
        }
    }

    fn count_error(&self, ctx: Ctx, error: Option<&Status>) {
        if error == Some(&Status::Locked) {
            self.count(ctx, Counter::LockErrors);
        }
    }
}

pub(crate) fn pending(
    ctx: Ctx,
    write: &Write<'_>,
    durability: Option<Durability>,
    op: Op,
) -> Pending {
    Pending {
        key: *write.key,
        cookie: write.cookie,
        cas: write.cas,
        durability,
        preserve_ttl: write.preserve_ttl,
        op,
        since_ns: ctx.now.mono_ns,
        attempts: 0,
    }
}
