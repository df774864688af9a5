//! Commands that store a value, delete it, or change its expiry.

use super::ahead::copied_ahead;
use super::component::{Documents, Write};
use super::reads::pick;
use super::writing::WriteResult;

use crate::Arithmetic;

use kedge_bucket_core::Counter;
use kedge_bucket_core::Ctx;
use kedge_bucket_core::Outcome;
use kedge_residency::Admission;
use kedge_types::{Datatype, Status};
use kedge_vbucket::{
    ConcatChange, ConcatMode, DocOp, Document, Executed, MinRatio, Modify, Mutated, PrebuiltItem,
    StoreMode, VBucket,
};
use std::borrow::Cow;

/// Most digits of a counter.
const COUNTER_BYTES: usize = 20;

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

impl Documents {
    /// Stores a value. Whether it is JSON is found out here.
    ///
    /// # Errors
    /// `KeyExists`, `KeyNotFound`, `Locked`, `TooBig`, `Invalid`, `SyncWriteInProgress`, `NotMyVbucket`; `NoMemory`;
    /// `TemporaryFailure` when nothing can leave memory to make room. A write for which room is being made is parked.
    pub fn store(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        storing: &Storing<'_>,
    ) -> Result<Outcome<Mutated>, Status> {
        self.store_telling(ctx, write, storing, |_, mutated| mutated)
    }

    /// [`Documents::store`] that gives what `tell` makes of it. When it was parked, the completion has the document.
    pub(crate) fn store_telling<R: WriteResult>(
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
        let value = self.check_value(ctx, value, datatype, self.core.dynamic.min_ratio())?;
        let room = self.admit(ctx, write.key.as_bytes().len() + value.bytes.len())?;
        let expiry = self.expiry(ctx.now, write.key, expiry);
        self.count(ctx, Counter::CmdSet);
        let op = DocOp::Store {
            mode,
            value: value.borrowed(),
            flags,
            expiry,
        };
        if let Admission::Later(bytes) = room {
            return self.hold_write(ctx, write, bytes, op);
        }
        let behind = self.store_behind(write, mode, &value, flags);
        let ahead = match behind {
            None => PrebuiltItem::of(write.key, &value.bytes),
            Some(_) => None,
        };
        let behind = behind.as_ref().map(|change| change as &dyn Modify);
        let result = self.write(ctx, write, &op, |vbucket, inner| {
            let inner = inner.with_prebuilt(ahead.as_ref());
            let outcome = vbucket.at(ctx.now).mutate(&inner, &op, behind)?;
            Ok(outcome.map(|mutated| tell(vbucket, mutated)))
        });
        self.hold_back_if_behind(ctx, write, result)
    }

    /// Puts bytes in front of or behind a value.
    ///
    /// # Errors
    /// `NotStored` when there is none; else as [`Documents::store`].
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
        let op = DocOp::Concat {
            mode,
            bytes: Cow::Borrowed(&*value.bytes),
        };
        if let Admission::Later(bytes) = room {
            return self.hold_write(ctx, write, bytes, op);
        }
        let concat = ConcatChange::new(mode, &value.bytes);
        self.prepare(write, &concat);
        let result = self.write(ctx, write, &op, |vbucket, inner| {
            vbucket.at(ctx.now).mutate(inner, &op, Some(&concat))
        });
        self.hold_back_if_behind(ctx, write, result)
    }

    /// Deletes a document.
    ///
    /// # Errors
    /// As [`Documents::store`]. Memory is no reason: deleting makes room.
    pub fn delete(&self, ctx: Ctx, write: &Write<'_>) -> Result<Outcome<Mutated>, Status> {
        self.refuse_on_full_disk()?;
        self.write(ctx, write, &DocOp::Delete, |vbucket, inner| {
            vbucket.at(ctx.now).mutate(inner, &DocOp::Delete, None)
        })
    }

    /// Adds to or subtracts from a counter and gives its new value.
    ///
    /// # Errors
    /// `KeyNotFound`, `DeltaBadValue`; else as [`Documents::store`].
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
        let op = kedge_vbucket::CounterOp {
            negative,
            delta,
            initial,
            expiry: self.expiry(ctx.now, write.key, expiry),
        };
        if let Admission::Later(bytes) = room {
            return self.hold_write(ctx, write, bytes, DocOp::Arithmetic(op));
        }
        let op = DocOp::Arithmetic(op);
        let outcome = self.write(ctx, write, &op, |vbucket, inner| {
            vbucket.at(ctx.now).execute(inner, &op, |_| ())
        })?;
        pick(outcome, Executed::into_counter)
    }

    /// Gives a document another expiry, the number of the wire.
    ///
    /// # Errors
    /// As [`Documents::store`].
    pub fn touch(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        expiry: u32,
    ) -> Result<Outcome<Mutated>, Status> {
        self.refuse_on_full_disk()?;
        let expiry = self.expiry(ctx.now, write.key, expiry);
        self.count(ctx, Counter::CmdTouch);
        let op = DocOp::Touch { expiry };
        let there = self.peek_long(write.vb, write.key);
        let ahead = copied_ahead(there.as_ref());
        self.write(ctx, write, &op, |vbucket, inner| {
            let inner = inner.with_prebuilt(ahead.as_ref());
            vbucket.at(ctx.now).mutate(&inner, &op, None)
        })
    }

    /// [`Documents::touch`], then shows the document to `read`. When it was parked, the completion has the document.
    ///
    /// # Errors
    /// As [`Documents::touch`].
    pub fn get_and_touch<R>(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        expiry: u32,
        read: impl FnOnce(Document<'_>) -> R,
    ) -> Result<Outcome<R>, Status> {
        self.refuse_on_full_disk()?;
        let expiry = self.expiry(ctx.now, write.key, expiry);
        self.count(ctx, Counter::CmdTouch);
        let op = DocOp::GetAndTouch { expiry };
        let there = self.peek_long(write.vb, write.key);
        let ahead = copied_ahead(there.as_ref());
        let outcome = self.write(ctx, write, &op, |vbucket, inner| {
            let inner = inner.with_prebuilt(ahead.as_ref());
            vbucket.at(ctx.now).execute(&inner, &op, read)
        })?;
        pick(outcome, |done| done.into_touched().map(|(_, shown)| shown))
    }
}
