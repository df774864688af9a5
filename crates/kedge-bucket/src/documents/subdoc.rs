//! Sub-document commands: what they read, and changes that are made of what is there.

use super::checks::TimedChange;
use super::component::{Documents, Write};
use super::reads::pick;
use super::writing::pending;
use kedge_bucket_core::Counter;
use kedge_bucket_core::Ctx;
use kedge_bucket_core::Outcome;
use kedge_bucket_core::Read;
use kedge_residency::{Admission, WaitFor};
use kedge_types::{Cas, Status};
use kedge_vbucket::{DocOp, Document, Executed, Item, Modify, Mutated};
use std::sync::Arc;

/// What a sub-document lookup reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookIn {
    /// A document of the active vBucket.
    Documents,
    /// A document or tombstone of the active vBucket.
    Tombstones,
    /// A document of a replica.
    Replica,
    /// A document or tombstone of a replica.
    ReplicaTombstones,
}

impl Documents {
    /// A document with its value, and the CAS that clients see. When it was parked, the completion has both.
    ///
    /// # Errors
    /// As [`Documents::get`] and [`Documents::get_replica`].
    pub fn look_in(
        &self,
        ctx: Ctx,
        wanted: &Read<'_>,
        which: LookIn,
    ) -> Result<Outcome<(Item, Cas)>, Status> {
        self.count(ctx, Counter::SubdocLookups);
        let op = match which {
            LookIn::Documents => DocOp::Get,
            LookIn::Tombstones => DocOp::GetWithTombstones,
            LookIn::Replica => DocOp::GetReplica,
            LookIn::ReplicaTombstones => DocOp::GetReplicaWithTombstones,
        };
        let read = |document: Document<'_>| (document.item.clone(), document.cas);
        pick(self.run(ctx, wanted, op, None, read)?, Executed::into_read)
    }

    /// Makes a new version of a document of what is there, under the vBucket's lock. `expiry` is the number of the wire.
    ///
    /// # Errors
    /// Those of `change`, and as [`Documents::store`].
    pub fn modify(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        expiry: u32,
        change: &Arc<dyn Modify>,
    ) -> Result<Outcome<Mutated>, Status> {
        let room = self.admit(ctx, write.key.as_bytes().len() + change.bytes())?;
        self.count(ctx, Counter::SubdocMutations);
        let expiry = self.expiry(ctx.now, write.key, expiry);
        let op = DocOp::Modify {
            change: Arc::clone(change),
            expiry,
        };
        if let Admission::Later(bytes) = room {
            let durability = self.core.dynamic.durability(write.durability);
            let op = pending(ctx, write, durability, op);
            return self.residency.park(ctx, op, WaitFor::Memory(bytes));
        }
        self.prepare(write, &**change);
        let result = self.write(ctx, write, &op, |vbucket, inner| {
            let timed = TimedChange::new(&**change);
            let outcome = vbucket.at(ctx.now).mutate(inner, &op, Some(&timed));
            self.record_change(ctx, &timed);
            outcome
        });
        self.hold_back_if_behind(ctx, write, result)
    }
}
