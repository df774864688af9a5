//! GET_META and GETQ_META.

use kedge_bucket::{Meta, Outcome};
use kedge_node::output::Output;
use kedge_protocol::binary::Response;
use kedge_protocol::binary::commands::{GetMeta, GetMetaReply, MetaVersion};
use kedge_types::Status;

use super::context::{CommandContext, CommandOutcome};
use crate::session::{CommandFailure, Composer, ReplyKind, Rights};

pub(super) fn get_meta(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let wire = GetMeta::decode(command.request)?;
    let target =
        command
            .session
            .target(command.request, wire.key, Rights::READ, &mut command.key)?;
    let read = target.read(command.session);
    let outcome = target
        .bucket
        .documents()
        .get_meta(command.turn.ctx(), &read)?;
    let with_datatype = matches!(wire.version, MetaVersion::V2);
    match outcome {
        Outcome::Done(meta) => {
            compose(&command.composer, &meta, with_datatype, command.out);
            Ok(CommandOutcome::Replied)
        }
        Outcome::Parked => Ok(command.park_as(ReplyKind::Meta { with_datatype })),
    }
}

pub(super) fn compose(composer: &Composer, meta: &Meta, with_datatype: bool, out: &mut Output) {
    let mut extras = Vec::with_capacity(21);
    GetMetaReply {
        deleted: meta.deleted,
        flags: meta.flags,
        expiry: meta.expiry.0,
        rev_seqno: meta.rev_seqno,
        datatype: with_datatype.then_some(meta.datatype),
    }
    .encode(&mut extras);
    Response {
        cas: meta.cas,
        extras: &extras,
        ..composer.response(Status::Success)
    }
    .write(out.buffer());
}
