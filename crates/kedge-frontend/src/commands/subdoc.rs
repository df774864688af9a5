//! Sub-document commands, of one path (SUBDOC_GET and its relatives) and of several.

use std::sync::Arc;

use kedge_bucket::{Completion, Item, LookupTarget, Modify, Mutated, Outcome, Timing};
use kedge_node::output::Output;
use kedge_protocol::binary::commands::subdoc::{
    DocFlags, SubdocMulti, SubdocOp, SubdocSingle, SubdocSpec, push_lookup_result,
    push_mutation_failure, push_mutation_result, xattr_key,
};
use kedge_protocol::binary::{Feature, Opcode, Request, Response};
use kedge_subdoc::{OwnedSpec, SubdocMutation, VbucketContext, check, lookup};
use kedge_types::{Cas, Status, is_system_xattr};

use super::complete;
use super::context::{CommandContext, CommandOutcome};
use crate::session::{
    CommandFailure, Composer, PendingLookup, PendingSubdocMutation, ReplyKind, Rights,
};

/// A request with one path or with several.
struct SubdocRequest<'r> {
    specs: Vec<SubdocSpec<'r>>,
    flags: DocFlags,
    expiry: u32,
    user_flags: Option<u32>,
    key: &'r [u8],
    cas: Cas,
    single: bool,
}

impl<'r> SubdocRequest<'r> {
    fn decode(opcode: Opcode, request: &Request<'r>) -> Result<Self, Status> {
        if matches!(
            opcode,
            Opcode::SubdocMultiLookup | Opcode::SubdocMultiMutation
        ) {
            let multi = SubdocMulti::decode(request)?;
            return Ok(Self {
                specs: multi.specs.collect(),
                flags: multi.doc_flags,
                expiry: multi.expiry.unwrap_or(0),
                user_flags: multi.user_flags,
                key: multi.key,
                cas: multi.cas,
                single: false,
            });
        }
        let single = SubdocSingle::decode(request)?;
        Ok(Self {
            specs: vec![single.spec],
            flags: single.doc_flags,
            expiry: single.expiry.unwrap_or(0),
            user_flags: None,
            key: single.key,
            cas: single.cas,
            single: true,
        })
    }

    fn check(&self, command: &CommandContext<'_, '_, '_>) -> Result<(), CommandFailure> {
        let has_xattrs = self.specs.iter().any(SubdocSpec::is_xattr);
        if has_xattrs && !command.session.protocol.features.contains(Feature::Xattr) {
            let context = "extended attributes were not negotiated";
            return Err(CommandFailure::new(Status::NotSupported, context));
        }
        Ok(check(self.specs.iter().copied())?)
    }

    /// The privileges that the specs need. System attributes, whose names `$XTOC` shows too, have a privilege of their
    /// own for reads and for writes.
    fn needed(&self) -> Rights {
        let needed = self.specs.iter().map(|spec| {
            let body = match spec.op {
                SubdocOp::DeleteDoc => Rights::DELETE,
                SubdocOp::AddDoc => Rights::INSERT,
                op if !op.is_mutation() => Rights::READ,
                _ if self.flags.contains(DocFlags::ADD) => Rights::INSERT,
                _ => Rights::UPSERT,
            };
            let name = match xattr_key(spec.path) {
                Ok(name) if spec.is_xattr() => name,
                _ => return body,
            };
            let is_system = is_system_xattr(name);
            match spec.op {
                // Its value is read from the attribute.
                SubdocOp::ReplaceBodyWithXattr if is_system => body.and(Rights::READ_SYSTEM),
                op if is_system && op.is_mutation() => body.and(Rights::WRITE_SYSTEM),
                _ if is_system || name == NAMES => body.and(Rights::READ_SYSTEM),
                _ => body,
            }
        });
        needed.fold(Rights::NONE, Rights::and)
    }
}

/// The virtual attribute with the names of all others.
const NAMES: &[u8] = b"$XTOC";

pub(super) fn look(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let value = command.inflated()?;
    let request = command.request.with_inflated(&value);
    let wire = SubdocRequest::decode(command.opcode, &request)?;
    wire.check(command)?;
    let needed = wire.needed().and(Rights::READ);
    let target = command
        .session
        .target(command.request, wire.key, needed, &mut command.key)?;
    let has = |flag| wire.flags.contains(flag);
    let which = match (has(DocFlags::REPLICA_READ), has(DocFlags::ACCESS_DELETED)) {
        (false, false) => LookupTarget::Documents,
        (false, true) => LookupTarget::Tombstones,
        (true, false) => LookupTarget::Replica,
        (true, true) => LookupTarget::ReplicaTombstones,
    };
    let ctx = command.turn.ctx();
    let branch = target.bucket.failover_log(ctx, target.vb)?;
    let around = VbucketContext {
        uuid: branch.first().map(|(uuid, _)| *uuid).unwrap_or_default(),
        unix_secs: ctx.now.unix_secs(),
    };
    let read = target.read(command.session);
    match target.bucket.documents().lookup_in(ctx, &read, which)? {
        Outcome::Done((item, cas)) => {
            let specs = wire.specs.iter().copied();
            let clock = &command.turn.shared.clock;
            let began_ns = clock.mono_ns();
            let reply = LookupReply::at(&item, cas, &around, specs)?;
            let took_us = (clock.mono_ns() - began_ns) / 1_000;
            let timings = target.bucket.timings();
            timings.record_us(ctx.thread, Timing::SubdocExecute, took_us);
            reply.compose(&command.composer, wire.single, command.out)?;
            Ok(CommandOutcome::Replied)
        }
        Outcome::Parked => {
            let specs = wire.specs.iter().copied().map(OwnedSpec::from).collect();
            Ok(command.park_as(ReplyKind::Lookup(Box::new(PendingLookup {
                specs,
                around,
                single: wire.single,
            }))))
        }
    }
}

/// Answers a lookup that was parked.
pub(super) fn complete_lookup(
    composer: &Composer,
    looking: &PendingLookup,
    completion: Completion,
    out: &mut Output,
) -> Result<(), CommandFailure> {
    let (item, cas) = complete::document(completion)?;
    let specs = looking.specs.iter().map(OwnedSpec::get);
    let reply = LookupReply::at(&item, cas, &looking.around, specs)?;
    reply.compose(composer, looking.single, out)
}

/// The result of a lookup.
struct LookupReply {
    cas: Cas,
    deleted: bool,
    /// The status of the last failed spec.
    failed: Option<Status>,
    /// The results of a multi lookup.
    results: Vec<u8>,
    /// The offset of the value of the last spec in it.
    last: usize,
}

impl LookupReply {
    fn at<'s>(
        item: &Item,
        cas: Cas,
        around: &VbucketContext,
        specs: impl Iterator<Item = SubdocSpec<'s>>,
    ) -> Result<Self, Status> {
        let mut looked = Self {
            cas,
            deleted: item.is_deleted(),
            failed: None,
            results: Vec::new(),
            last: 0,
        };
        lookup(item, cas, around, specs, &mut |status, value| {
            if status != Status::Success {
                looked.failed = Some(status);
            }
            push_lookup_result(status, value, &mut looked.results);
            looked.last = looked.results.len() - value.len();
        })?;
        Ok(looked)
    }

    fn compose(
        &self,
        composer: &Composer,
        single: bool,
        out: &mut Output,
    ) -> Result<(), CommandFailure> {
        let status = match (self.failed, self.deleted) {
            (Some(status), _) if single => return Err(status.into()),
            (Some(_), false) => Status::SubdocMultiPathFailure,
            (Some(_), true) => Status::SubdocMultiPathFailureDeleted,
            (None, false) => Status::Success,
            (None, true) => Status::SubdocSuccessDeleted,
        };
        let from = if single { self.last } else { 0 };
        Response {
            cas: self.cas,
            value: &self.results[from..],
            ..composer.response(status)
        }
        .write(out.buffer());
        Ok(())
    }
}

pub(super) fn change(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let value = command.inflated()?;
    let request = command.request.with_inflated(&value);
    let wire = SubdocRequest::decode(command.opcode, &request)?;
    wire.check(command)?;
    let needed = wire.needed();
    let target = command
        .session
        .target(command.request, wire.key, needed, &mut command.key)?;
    let mutation = SubdocMutation::new(wire.specs.iter().copied(), wire.flags);
    let changing = PendingSubdocMutation {
        mutation: Arc::new(mutation.with_user_flags(wire.user_flags)),
        single: wire.single,
    };
    let write = target.write(command.session, &command.infos, wire.cas);
    let change: Arc<dyn Modify> = changing.mutation.clone();
    let ctx = command.turn.ctx();
    let result = match target
        .bucket
        .documents()
        .modify(ctx, &write, wire.expiry, &change)
    {
        Ok(Outcome::Parked) => {
            return Ok(command.park_as(ReplyKind::SubdocMutation(Box::new(changing))));
        }
        Ok(Outcome::Done(mutated)) => Ok(mutated),
        Err(status) => Err(status),
    };
    changing.compose(&command.composer, result, command.out)?;
    Ok(CommandOutcome::Replied)
}

/// Answers a mutation that was parked.
pub(super) fn changed(
    composer: &Composer,
    changing: &PendingSubdocMutation,
    completion: Completion,
    out: &mut Output,
) -> Result<(), CommandFailure> {
    let result = complete::mutation(completion).map(|(mutated, _)| mutated);
    changing.compose(composer, result, out)
}

impl PendingSubdocMutation {
    fn compose(
        &self,
        composer: &Composer,
        result: Result<Mutated, Status>,
        out: &mut Output,
    ) -> Result<(), CommandFailure> {
        let reply = self.mutation.reply();
        match (result, reply.failed) {
            (Ok(mutated), _) => {
                let mut value = Vec::new();
                for (index, bytes) in &reply.values {
                    match self.single {
                        true => value.extend_from_slice(bytes),
                        false => push_mutation_result(*index, bytes, &mut value),
                    }
                }
                let status = match reply.deleted {
                    true => Status::SubdocSuccessDeleted,
                    false => Status::Success,
                };
                composer.mutation_as(status, &mutated, &value, out);
                Ok(())
            }
            (
                Err(
                    status @ (Status::SubdocMultiPathFailure
                    | Status::SubdocMultiPathFailureDeleted),
                ),
                Some((index, failed)),
            ) => {
                if self.single {
                    return Err(failed.into());
                }
                let mut value = Vec::new();
                push_mutation_failure(index, failed, &mut value);
                Response {
                    value: &value,
                    ..composer.response(status)
                }
                .write(out.buffer());
                Ok(())
            }
            (Err(status), _) => Err(status.into()),
        }
    }
}
