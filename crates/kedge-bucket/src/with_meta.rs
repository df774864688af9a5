//! Writes that bring their metadata along, and writes that tell theirs.

use crate::bucket::{Bucket, Ctx, Write};
use crate::config::ConflictResolution;
use crate::counters::Counter;
use crate::documents::pending;
use crate::fetch::Op;
use crate::held::Room;
use crate::outcome::Outcome;
use kedge_types::{Cas, Datatype, DocKey, Expiry, RevSeqno, Status};
use kedge_vbucket::{
    ConflictRule, Deletion, Given, ItemMeta, Mutated, NewValue, Outcome as StepOutcome, StoreMode,
    VBucket,
};

/// A document or deletion with the metadata that it has elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct WithMeta<'a> {
    /// Its version.
    pub cas: Cas,
    /// Count of changes.
    pub rev: RevSeqno,
    /// The client's own 32 bits.
    pub flags: u32,
    /// Unix second of expiry, 0 for never; of the deletion, for one.
    pub expiry: u32,
    /// Whether it is a deletion, and why.
    pub deleted: Option<Deletion>,
    /// A live document must not be there.
    pub only_new: bool,
    /// It gets a CAS of this node instead of its own.
    pub new_cas: bool,
    /// It takes the place of anything.
    pub skip_conflicts: bool,
    /// The client says that the bucket is one in which the last write wins.
    pub for_last_write: bool,
    /// Its value.
    pub value: &'a [u8],
    /// What the client says of the value.
    pub datatype: Datatype,
}

/// A write of which the client wants to know the metadata.
#[derive(Clone, Copy, Debug)]
pub enum Returning<'a> {
    /// A store.
    Store {
        /// Whether the document may be there.
        mode: StoreMode,
        /// The value.
        value: &'a [u8],
        /// What the client says of it.
        datatype: Datatype,
        /// The client's own 32 bits.
        flags: u32,
        /// The number of the wire.
        expiry: u32,
    },
    /// A deletion.
    Delete,
}

impl Bucket {
    /// Stores or deletes a document with the metadata given, unless the one that is there wins. It is never a SyncWrite,
    /// whatever the bucket's least level.
    ///
    /// # Errors
    /// `KeyExists` when the one that is there wins, has another CAS, or is there at all though it may not be;
    /// `CasValueInvalid`; `Invalid` when the client is wrong about how the bucket resolves conflicts, the revision is too
    /// high, a deletion has a value, or a value has extended attributes; else as [`Bucket::store`].
    pub fn write_with_meta(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        with: &WithMeta<'_>,
    ) -> Result<Outcome<Mutated>, Status> {
        let rule = match self.setup.config.conflict_resolution {
            ConflictResolution::Seqno => ConflictRule::MostChanges,
            ConflictResolution::Lww => ConflictRule::LastWrite,
        };
        let is_deletion = with.deleted.is_some();
        if with.for_last_write != (rule == ConflictRule::LastWrite)
            || (is_deletion && !with.value.is_empty())
        {
            return Err(Status::Invalid);
        }
        let value = NewValue::check(with.value, with.datatype, self.hot.min_ratio())?;
        let value = match with.deleted {
            None => value,
            Some(_) => NewValue::of_deletion(),
        };
        let expiry = Expiry(with.expiry);
        let given = Given {
            cas: with.cas,
            rev: with.rev,
            flags: with.flags,
            expiry: match with.deleted {
                None => self.limited(ctx.now, write.key, expiry),
                Some(_) => expiry,
            },
            deleted: with.deleted,
            only_new: with.only_new,
            new_cas: with.new_cas,
            rule: (!with.skip_conflicts).then_some(rule),
        };
        self.count(ctx, given_counters(&given).0);
        let op = || Op::WithMeta {
            given,
            bytes: value.bytes.as_ref().into(),
            datatype: value.datatype,
        };
        if is_deletion {
            self.refuse_on_full_disk()?;
        } else {
            let bytes = write.key.as_bytes().len() + value.bytes.len();
            if let Room::Later(bytes) = self.admit(ctx, bytes)? {
                return self.hold(ctx, write.vb, bytes, pending(ctx, write, None, op()));
            }
        }
        let result = self.write_at(ctx, write, None, None, op, |vbucket, inner| {
            vbucket.write_with_meta(ctx.now, inner, &given, &value)
        });
        if result == Err(Status::KeyExists) {
            self.count(ctx, given_counters(&given).1);
        }
        self.hold_back_if_behind(ctx, write, result)
    }

    /// A write whose metadata the client is told. When it was parked, the completion has the document or tombstone.
    ///
    /// # Errors
    /// As [`Bucket::store`] and [`Bucket::delete`].
    pub fn write_returning(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        what: &Returning<'_>,
    ) -> Result<Outcome<(Mutated, ItemMeta)>, Status> {
        let durability = self.hot.durability(write.durability);
        match *what {
            Returning::Delete => {
                self.refuse_on_full_disk()?;
                let op = || Op::Delete;
                self.write_at(ctx, write, durability, None, op, |vbucket, inner| {
                    let outcome = vbucket.delete(ctx.now, inner)?;
                    Ok(told(vbucket, write.key, outcome))
                })
            }
            Returning::Store {
                mode,
                value,
                datatype,
                flags,
                expiry,
            } => {
                let value = NewValue::check(value, datatype, self.hot.min_ratio())?;
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
                    let pending = pending(ctx, write, durability, op());
                    return self.hold(ctx, write.vb, bytes, pending);
                }
                self.write_at(ctx, write, durability, None, op, |vbucket, inner| {
                    let outcome = vbucket.store(ctx.now, inner, mode, &value, flags, expiry)?;
                    Ok(told(vbucket, write.key, outcome))
                })
            }
        }
    }
}

/// What is counted of it, and what when it lost.
pub(crate) fn given_counters(given: &Given) -> (Counter, Counter) {
    match given.deleted {
        None => (Counter::SetWithMeta, Counter::SetWithMetaLost),
        Some(_) => (Counter::DeleteWithMeta, Counter::DeleteWithMetaLost),
    }
}

fn told(
    vbucket: &VBucket,
    key: &DocKey,
    outcome: StepOutcome<Mutated>,
) -> StepOutcome<(Mutated, ItemMeta)> {
    outcome.map(|mutated| {
        let (table, key) = (vbucket.table(), key.as_bytes());
        let item = table
            .find(table.hash(key), key)
            .expect("it was written just now");
        (mutated, item.meta())
    })
}
