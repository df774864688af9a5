//! Writes that bring their metadata along, and writes that tell theirs.

use super::component::{Documents, Write};
use super::store::Storing;
use super::writing::pending;
use kedge_bucket_core::ConflictResolution;
use kedge_bucket_core::Ctx;
use kedge_bucket_core::Outcome;
use kedge_residency::{Admission, WaitFor, with_meta_counters};
use kedge_types::{Cas, Datatype, DocKey, Expiry, RevSeqno, Status};
use kedge_vbucket::{
    ConflictRule, Deletion, DocOp, ItemMeta, MinRatio, Mutated, NewValue, Patches, PrebuiltItem,
    VBucket, WithMetaArgs,
};
use std::borrow::Cow;

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
    /// Its value, behind its extended attributes if the datatype says that it has some; of a deletion nothing else.
    pub value: &'a [u8],
    /// What the client says of the value.
    pub datatype: Datatype,
    /// Where in its extended attributes the version that it gets is written.
    pub patches: &'a Patches,
}

/// A write of which the client wants to know the metadata.
#[derive(Clone, Copy, Debug)]
pub enum Returning<'a> {
    /// A store.
    Store(Storing<'a>),
    /// A deletion.
    Delete,
}

impl Documents {
    /// Stores or deletes a document with the metadata given, unless the one that is there wins. It is never a SyncWrite,
    /// whatever the bucket's least level.
    ///
    /// # Errors
    /// `KeyExists` when the one that is there wins, has another CAS, or is there at all though it may not be;
    /// `CasValueInvalid`; `XattrInvalid`; `Invalid` when the client is wrong about how the bucket resolves conflicts, the
    /// revision is too high, a deletion has a body, or the version cannot be written where it should be; else as
    /// [`Documents::store`].
    pub fn write_with_meta(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        with: &WithMeta<'_>,
    ) -> Result<Outcome<Mutated>, Status> {
        let rule = match self.core.setup.config.conflict_resolution {
            ConflictResolution::Seqno => ConflictRule::MostChanges,
            ConflictResolution::Lww => ConflictRule::LastWrite,
        };
        if with.for_last_write != (rule == ConflictRule::LastWrite) {
            return Err(Status::Invalid);
        }
        // What is to be written into is not kept compressed.
        let min_ratio = match with.patches.is_empty() {
            true => self.core.dynamic.min_ratio(),
            false => MinRatio::NEVER,
        };
        let value = match with.deleted {
            None => NewValue::check_whole(with.value, with.datatype, min_ratio)?,
            Some(_) => NewValue::check_deletion(with.value, with.datatype)?,
        };
        if !with.patches.is_empty() {
            if !value.datatype.contains(Datatype::XATTR) {
                return Err(Status::Invalid);
            }
            with.patches.check(&value.bytes)?;
        }
        let expiry = Expiry(with.expiry);
        let args = WithMetaArgs {
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
        self.count(ctx, with_meta_counters(&args).0);
        let op = DocOp::WithMeta {
            args,
            value: value.borrowed(),
            patches: Cow::Borrowed(with.patches),
        };
        if args.deleted.is_some() && value.bytes.is_empty() {
            self.refuse_on_full_disk()?;
        } else {
            let bytes = write.key.as_bytes().len() + value.bytes.len();
            if let Admission::Later(bytes) = self.admit(ctx, bytes)? {
                let op = pending(ctx, write, None, op);
                return self.residency.park(ctx, op, WaitFor::Memory(bytes));
            }
        }
        let ahead = PrebuiltItem::of(write.key, &value.bytes);
        let result = self.write_at(ctx, write, None, &op, |vbucket, inner| {
            let inner = inner.with_prebuilt(ahead.as_ref());
            vbucket.at(ctx.now).mutate(&inner, &op, None)
        });
        self.hold_back_if_behind(ctx, write, result)
    }

    /// A write whose metadata the client is told. When it was parked, the completion has the document or tombstone.
    ///
    /// # Errors
    /// As [`Documents::store`] and [`Documents::delete`].
    pub fn write_returning(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        what: &Returning<'_>,
    ) -> Result<Outcome<(Mutated, ItemMeta)>, Status> {
        let tell = |vbucket: &VBucket, mutated| (mutated, meta_of(vbucket, write.key));
        match what {
            Returning::Delete => {
                self.refuse_on_full_disk()?;
                self.write(ctx, write, &DocOp::Delete, |vbucket, inner| {
                    let outcome = vbucket.at(ctx.now).delete(inner)?;
                    Ok(outcome.map(|mutated| tell(vbucket, mutated)))
                })
            }
            Returning::Store(storing) => self.store_telling(ctx, write, storing, tell),
        }
    }
}

/// The metadata of what was written just now.
fn meta_of(vbucket: &VBucket, key: &DocKey) -> ItemMeta {
    let (table, key) = (vbucket.table(), key.as_bytes());
    let item = table.find(table.hash(key), key);
    item.expect("it was written just now").meta()
}
