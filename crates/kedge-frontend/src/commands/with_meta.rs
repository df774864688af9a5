//! SET_WITH_META, ADD_WITH_META, DEL_WITH_META and their quiet forms; MUTATE_WITH_META; RETURN_META.

use kedge_bucket::{
    Deletion, ItemMeta, Mutated, Outcome, Patches, ReturnMetaOp, StoreArgs, StoreMode,
};
use kedge_node::output::Output;
use kedge_protocol::binary::commands::{
    MutateKind, MutateWithMeta, ReturnMeta, ReturnMetaKind, ReturnMetaReply, WithMeta,
    WithMetaOptions,
};
use kedge_protocol::binary::{Opcode, Response};
use kedge_types::{Cas, Datatype, RevSeqno, Status};

use super::context::{CommandContext, CommandOutcome};
use crate::session::{CommandFailure, Composer, ReplyKind, Rights};

pub(super) fn write(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let wire = WithMeta::decode(command.request)?;
    let kind = match command.opcode {
        Opcode::DelWithMeta | Opcode::DelqWithMeta => MutateKind::Delete,
        Opcode::AddWithMeta | Opcode::AddqWithMeta => MutateKind::Add,
        _ => MutateKind::Set,
    };
    let none = Patches::default();
    let with = kedge_bucket::WriteWithMeta {
        cas: wire.cas,
        rev: wire.rev_seqno,
        flags: wire.flags,
        expiry: wire.expiry,
        value: wire.value,
        datatype: wire.datatype,
        ..decode_change(kind, wire.options, &none)?
    };
    execute(command, wire.key, wire.expected_cas, &with)
}

/// MUTATE_WITH_META: the same with the metadata behind the value.
pub(super) fn mutate(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let value = command.inflated()?;
    let wire = MutateWithMeta::decode(&command.request.with_inflated(&value))?;
    let patches = Patches {
        cas: wire.cas_offsets,
        seqno: wire.seqno_offsets,
    };
    let what = decode_change(wire.kind, wire.options, &patches)?;
    let with = kedge_bucket::WriteWithMeta {
        cas: wire.cas.unwrap_or_default(),
        rev: wire.rev_seqno,
        flags: wire.flags,
        expiry: wire.expiry,
        new_cas: wire.cas.is_none(),
        value: wire.value,
        datatype: wire.datatype,
        ..what
    };
    execute(command, wire.key, wire.expected_cas, &with)
}

/// Decodes the change, without any effect yet.
fn decode_change<'p>(
    kind: MutateKind,
    options: WithMetaOptions,
    patches: &'p Patches,
) -> Result<kedge_bucket::WriteWithMeta<'p>, CommandFailure> {
    let has = |option| options.contains(option);
    let deleted = match (kind, has(WithMetaOptions::IS_EXPIRATION)) {
        (MutateKind::Delete, true) => Some(Deletion::Expired),
        (MutateKind::Delete, false) => Some(Deletion::Explicit),
        (_, true) => {
            let context = "only a deletion can be an expiration";
            return Err(CommandFailure::new(Status::Invalid, context));
        }
        (_, false) => None,
    };
    Ok(kedge_bucket::WriteWithMeta {
        cas: Cas(0),
        rev: RevSeqno(0),
        flags: 0,
        expiry: 0,
        deleted,
        only_new: kind == MutateKind::Add,
        new_cas: has(WithMetaOptions::REGENERATE_CAS),
        skip_conflicts: has(WithMetaOptions::SKIP_CONFLICT_RESOLUTION),
        for_last_write: has(WithMetaOptions::FORCE_ACCEPT),
        value: &[],
        datatype: Datatype::RAW,
        patches,
    })
}

fn execute(
    command: &mut CommandContext<'_, '_, '_>,
    key: &[u8],
    expected: Cas,
    with: &kedge_bucket::WriteWithMeta<'_>,
) -> Result<CommandOutcome, CommandFailure> {
    // The roles of writers do not include it, as it sets CAS and revision.
    let needed = Rights::WRITE_META;
    let target = command
        .session
        .target(command.request, key, needed, &mut command.key)?;
    let write = target.write(command.session, &command.infos, expected);
    let ctx = command.turn.ctx();
    let outcome = target
        .bucket
        .documents()
        .write_with_meta(ctx, &write, with)?;
    Ok(command.mutated(outcome))
}

pub(super) fn returning(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let wire = ReturnMeta::decode(command.request)?;
    let needed = match wire.kind {
        ReturnMetaKind::Set => Rights::UPSERT,
        ReturnMetaKind::Add => Rights::INSERT,
        ReturnMetaKind::Delete => Rights::DELETE,
    };
    let target = command
        .session
        .target(command.request, wire.key, needed, &mut command.key)?;
    let store = |mode| {
        ReturnMetaOp::Store(StoreArgs {
            mode,
            value: wire.value,
            datatype: wire.datatype,
            flags: wire.flags,
            expiry: wire.expiry,
        })
    };
    let what = match wire.kind {
        ReturnMetaKind::Set => store(StoreMode::Set),
        ReturnMetaKind::Add => store(StoreMode::Add),
        ReturnMetaKind::Delete => ReturnMetaOp::Delete,
    };
    let write = target.write(command.session, &command.infos, wire.cas);
    let ctx = command.turn.ctx();
    match target
        .bucket
        .documents()
        .write_returning_meta(ctx, &write, &what)?
    {
        Outcome::Done((mutated, meta)) => {
            compose(&command.composer, &mutated, &meta, command.out);
            Ok(CommandOutcome::Replied)
        }
        Outcome::Parked => Ok(command.park_as(ReplyKind::ReturnMeta)),
    }
}

pub(super) fn compose(composer: &Composer, mutated: &Mutated, meta: &ItemMeta, out: &mut Output) {
    let extras = ReturnMetaReply {
        flags: meta.flags,
        expiry: meta.expiry.0,
        rev_seqno: meta.rev,
    };
    Response {
        cas: mutated.cas,
        extras: &extras.encode(),
        ..composer.response(Status::Success)
    }
    .write(out.buffer());
}
