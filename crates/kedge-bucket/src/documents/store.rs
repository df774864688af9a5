//! Commands that store or delete a document, or change its expiry.

use super::ahead::copied_ahead;
use super::component::{DocumentCommands, Write};
use super::reads::pick;
use super::writing::WriteResult;

use crate::CounterUpdate;

use kedge_bucket_core::{Counter, Ctx, Outcome};
use kedge_residency::Admission;
use kedge_types::{Datatype, Status};
use kedge_vbucket::{
    ConcatChange, ConcatMode, DocOp, DocumentRef, Executed, MinRatio, Modify, Mutated,
    PrebuiltItem, StoreMode, VBucket,
};
use std::borrow::Cow;

/// The maximum number of digits of a counter.
const COUNTER_BYTES: usize = 20;

/// The arguments of a store.
#[derive(Clone, Copy, Debug)]
pub struct StoreArgs<'a> {
    /// The mode: set, add or replace.
    pub mode: StoreMode,
    /// The value.
    pub value: &'a [u8],
    /// The datatype that the client declares.
    pub datatype: Datatype,
    /// The client's flags.
    pub flags: u32,
    /// The expiry, as in the protocol.
    pub expiry: u32,
}

impl DocumentCommands {
    /// Stores a value, and detects whether it is JSON. The write is parked while it waits for memory.
    ///
    /// # Errors
    /// `KeyExists`, `KeyNotFound`, `Locked`, `TooBig`, `Invalid`, `SyncWriteInProgress`, `NotMyVbucket`; `NoMemory`;
    /// `TemporaryFailure` if there is no memory and nothing can be evicted.
    pub fn store(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        args: &StoreArgs<'_>,
    ) -> Result<Outcome<Mutated>, Status> {
        self.store_with(ctx, write, args, |_, mutated| mutated)
    }

    /// Runs [`DocumentCommands::store`] and maps its result with `map`, under the lock of the vBucket. If the write is parked,
    /// the completion contains the document.
    pub(crate) fn store_with<R: WriteResult>(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        args: &StoreArgs<'_>,
        map: impl FnOnce(&VBucket, Mutated) -> R,
    ) -> Result<Outcome<R>, Status> {
        let StoreArgs {
            mode,
            value,
            datatype,
            flags,
            expiry,
        } = *args;
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
            return self.park_for_memory(ctx, write, bytes, op);
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
            Ok(outcome.map(|mutated| map(vbucket, mutated)))
        });
        self.delay_if_disk_behind(ctx, write, result)
    }

    /// Appends or prepends bytes to a value.
    ///
    /// # Errors
    /// `NotStored` if the document does not exist; otherwise as [`DocumentCommands::store`].
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
            return self.park_for_memory(ctx, write, bytes, op);
        }
        let concat = ConcatChange::new(mode, &value.bytes);
        self.prepare(write, &concat);
        let result = self.write(ctx, write, &op, |vbucket, inner| {
            vbucket.at(ctx.now).mutate(inner, &op, Some(&concat))
        });
        self.delay_if_disk_behind(ctx, write, result)
    }

    /// Deletes a document.
    ///
    /// # Errors
    /// As [`DocumentCommands::store`], but a deletion never fails for lack of memory.
    pub fn delete(&self, ctx: Ctx, write: &Write<'_>) -> Result<Outcome<Mutated>, Status> {
        self.refuse_on_full_disk()?;
        self.write(ctx, write, &DocOp::Delete, |vbucket, inner| {
            vbucket.at(ctx.now).mutate(inner, &DocOp::Delete, None)
        })
    }

    /// Increments or decrements a counter, and returns its new value.
    ///
    /// # Errors
    /// `KeyNotFound`, `DeltaBadValue`; otherwise as [`DocumentCommands::store`].
    pub fn arithmetic(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        update: CounterUpdate,
    ) -> Result<Outcome<(Mutated, u64)>, Status> {
        let room = self.admit(ctx, write.key.as_bytes().len() + COUNTER_BYTES)?;
        let CounterUpdate {
            negative,
            delta,
            initial,
            expiry,
        } = update;
        let op = kedge_vbucket::CounterOp {
            negative,
            delta,
            initial,
            expiry: self.expiry(ctx.now, write.key, expiry),
        };
        if let Admission::Later(bytes) = room {
            return self.park_for_memory(ctx, write, bytes, DocOp::Arithmetic(op));
        }
        let op = DocOp::Arithmetic(op);
        let outcome = self.write(ctx, write, &op, |vbucket, inner| {
            vbucket.at(ctx.now).execute(inner, &op, |_| ())
        })?;
        pick(outcome, Executed::into_counter)
    }

    /// Sets the expiry of a document. `expiry` is as in the protocol.
    ///
    /// # Errors
    /// As [`DocumentCommands::store`].
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
        let existing = self.peek_long(write.vb, write.key);
        let ahead = copied_ahead(existing.as_ref());
        self.write(ctx, write, &op, |vbucket, inner| {
            let inner = inner.with_prebuilt(ahead.as_ref());
            vbucket.at(ctx.now).mutate(&inner, &op, None)
        })
    }

    /// Runs [`DocumentCommands::touch`], then passes the document to `read`. If the command is parked, the completion contains
    /// the document.
    ///
    /// # Errors
    /// As [`DocumentCommands::touch`].
    pub fn get_and_touch<R>(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        expiry: u32,
        read: impl FnOnce(DocumentRef<'_>) -> R,
    ) -> Result<Outcome<R>, Status> {
        self.refuse_on_full_disk()?;
        let expiry = self.expiry(ctx.now, write.key, expiry);
        self.count(ctx, Counter::CmdTouch);
        let op = DocOp::GetAndTouch { expiry };
        let existing = self.peek_long(write.vb, write.key);
        let ahead = copied_ahead(existing.as_ref());
        let outcome = self.write(ctx, write, &op, |vbucket, inner| {
            let inner = inner.with_prebuilt(ahead.as_ref());
            vbucket.at(ctx.now).execute(&inner, &op, read)
        })?;
        pick(outcome, |done| done.into_touched().map(|(_, shown)| shown))
    }
}
