//! Writes whose metadata the client specifies, and writes that return their metadata.

use super::component::{DocumentCommands, Write};
use super::store::StoreArgs;
use super::writing::pending;
use kedge_bucket_core::{ConflictResolution, Ctx, Outcome};
use kedge_residency::{Admission, WaitFor, with_meta_counters};
use kedge_types::{Cas, Datatype, DocKey, Expiry, RevSeqno, Status};
use kedge_vbucket::{
    ConflictRule, Deletion, DocOp, ItemMeta, MinRatio, Mutated, NewValue, Patches, PrebuiltItem,
    VBucket, WithMetaArgs,
};
use std::borrow::Cow;

/// The arguments of a write with metadata, as of a document or tombstone of another cluster.
#[derive(Clone, Copy, Debug)]
pub struct WriteWithMeta<'a> {
    /// The CAS.
    pub cas: Cas,
    /// The revision seqno: the number of changes.
    pub rev: RevSeqno,
    /// The client's flags.
    pub flags: u32,
    /// The expiry in Unix seconds, 0 for none; for a deletion, its time.
    pub expiry: u32,
    /// The cause of a deletion; `None` for a document.
    pub deleted: Option<Deletion>,
    /// True if the write fails if a live document exists.
    pub only_new: bool,
    /// True if the document gets a CAS of this node instead of `cas`.
    pub new_cas: bool,
    /// True if conflict resolution is skipped.
    pub skip_conflicts: bool,
    /// True if the client assumes that the bucket uses last-write-wins conflict resolution.
    pub for_last_write: bool,
    /// The value, after the extended attributes if the datatype says so. A deletion has at most extended attributes.
    pub value: &'a [u8],
    /// The datatype that the client declares.
    pub datatype: Datatype,
    /// The positions in the extended attributes at which the new CAS is written.
    pub patches: &'a Patches,
}

/// A write whose metadata is returned to the client.
#[derive(Clone, Copy, Debug)]
pub enum ReturnMetaOp<'a> {
    /// A store.
    Store(StoreArgs<'a>),
    /// A deletion.
    Delete,
}

impl DocumentCommands {
    /// Stores or deletes a document with the given metadata, unless the existing document wins the conflict. The write is
    /// never a SyncWrite, whatever the minimum durability level of the bucket.
    ///
    /// # Errors
    /// `KeyExists` if the existing document wins, has another CAS, or must not exist; `CasValueInvalid`; `XattrInvalid`;
    /// `Invalid` if the client is wrong about the conflict resolution of the bucket, the revision is too high, a deletion has
    /// a body, or the CAS cannot be written at the given position; otherwise as [`DocumentCommands::store`].
    pub fn write_with_meta(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        with: &WriteWithMeta<'_>,
    ) -> Result<Outcome<Mutated>, Status> {
        let rule = match self.core.setup.config.conflict_resolution {
            ConflictResolution::Seqno => ConflictRule::MostChanges,
            ConflictResolution::Lww => ConflictRule::LastWrite,
        };
        if with.for_last_write != (rule == ConflictRule::LastWrite) {
            return Err(Status::Invalid);
        }
        // A value that is patched is stored without compression.
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
        self.delay_if_disk_behind(ctx, write, result)
    }

    /// Writes a document and returns its metadata. If the write is parked, the completion contains the document or tombstone.
    ///
    /// # Errors
    /// As [`DocumentCommands::store`] and [`DocumentCommands::delete`].
    pub fn write_returning_meta(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        what: &ReturnMetaOp<'_>,
    ) -> Result<Outcome<(Mutated, ItemMeta)>, Status> {
        let map = |vbucket: &VBucket, mutated| (mutated, meta_of(vbucket, write.key));
        match what {
            ReturnMetaOp::Delete => {
                self.refuse_on_full_disk()?;
                self.write(ctx, write, &DocOp::Delete, |vbucket, inner| {
                    let outcome = vbucket.at(ctx.now).delete(inner)?;
                    Ok(outcome.map(|mutated| map(vbucket, mutated)))
                })
            }
            ReturnMetaOp::Store(args) => self.store_with(ctx, write, args, map),
        }
    }
}

/// Returns the metadata of the document that the caller has just written.
fn meta_of(vbucket: &VBucket, key: &DocKey) -> ItemMeta {
    let (table, key) = (vbucket.table(), key.as_bytes());
    let item = table.find(table.hash(key), key);
    item.expect("it was written just now").meta()
}
