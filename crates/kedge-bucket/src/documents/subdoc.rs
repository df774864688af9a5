//! Sub-document commands: lookups and mutations.

use super::checks::TimedChange;
use super::component::{DocumentCommands, Write};
use super::writing::pending;
use kedge_bucket_core::{Counter, Ctx, Outcome, Read};
use kedge_residency::{Admission, WaitFor};
use kedge_types::{Cas, Status};
use kedge_vbucket::{DocOp, Item, Modify, Mutated};
use std::sync::Arc;

/// The kind of document that a sub-document lookup reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupTarget {
    /// A document of the active vBucket.
    Documents,
    /// A document or tombstone of the active vBucket.
    Tombstones,
    /// A document of a replica.
    Replica,
    /// A document or tombstone of a replica.
    ReplicaTombstones,
}

impl DocumentCommands {
    /// Returns a document with its value, and the CAS that clients see. If the command is parked, the completion contains
    /// both.
    ///
    /// # Errors
    /// As [`DocumentCommands::get`] and [`DocumentCommands::get_replica`].
    pub fn lookup_in(
        &self,
        ctx: Ctx,
        wanted: &Read<'_>,
        which: LookupTarget,
    ) -> Result<Outcome<(Item, Cas)>, Status> {
        self.count(ctx, Counter::SubdocLookups);
        let op = match which {
            LookupTarget::Documents => DocOp::Get,
            LookupTarget::Tombstones => DocOp::GetWithTombstones,
            LookupTarget::Replica => DocOp::GetReplica,
            LookupTarget::ReplicaTombstones => DocOp::GetReplicaWithTombstones,
        };
        self.read(ctx, wanted, &op, |document| {
            (document.item.clone(), document.cas)
        })
    }

    /// Derives a new version of a document from the existing one, under the lock of the vBucket. `expiry` is as in the
    /// protocol.
    ///
    /// # Errors
    /// The errors of `change` and of [`DocumentCommands::store`].
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
        self.delay_if_disk_behind(ctx, write, result)
    }
}
