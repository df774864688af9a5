//! GET_META and GETQ_META.

use kedge_protocol::binary::Response;
use kedge_protocol::binary::commands::{GetMeta, GetMetaReply, MetaVersion};
use kedge_types::Status;

use super::{Command, Done};
use crate::session::{Failure, Rights};

pub(super) fn get_meta(command: &mut Command<'_, '_, '_>) -> Result<Done, Failure> {
    let wire = GetMeta::decode(command.request)?;
    let target = command
        .session
        .target(command.request, wire.key, Rights::READ)?;
    let meta = target
        .bucket
        .get_meta(command.turn.ctx(), target.vb, &target.key)?;
    let mut extras = Vec::with_capacity(21);
    GetMetaReply {
        deleted: meta.deleted,
        flags: meta.flags,
        expiry: meta.expiry.0,
        rev_seqno: meta.rev_seqno,
        datatype: match wire.version {
            MetaVersion::V2 => Some(meta.datatype),
            MetaVersion::V1 => None,
        },
    }
    .encode(&mut extras);
    let response = command.composer.response(Status::Success);
    let cas = meta.cas;
    Response {
        cas,
        extras: &extras,
        ..response
    }
    .write(command.out.buffer());
    Ok(Done::Replied)
}
