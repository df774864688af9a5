//! SET_WITH_META, ADD_WITH_META, DEL_WITH_META and their quiet forms; RETURN_META.

use kedge_bucket::{Deletion, ItemMeta, Mutated, Outcome, Returning, StoreMode};
use kedge_protocol::binary::commands::{
    ReturnMeta, ReturnMetaKind, ReturnMetaReply, WithMeta, WithMetaOptions,
};
use kedge_protocol::binary::{Opcode, Response};
use kedge_types::Status;

use super::{Command, Done};
use crate::output::Output;
use crate::session::{Composer, Failure, ReplyKind, Rights};

pub(super) fn write(command: &mut Command<'_, '_, '_>) -> Result<Done, Failure> {
    let wire = WithMeta::decode(command.request)?;
    // Roles for writers alone do not have it: CAS and revision are not theirs to say.
    let needed = Rights::WRITE_META;
    let target = command.session.target(command.request, wire.key, needed)?;
    let has = |option| wire.options.contains(option);
    let deleted = match command.opcode {
        Opcode::DelWithMeta | Opcode::DelqWithMeta => {
            Some(if has(WithMetaOptions::IS_EXPIRATION) {
                Deletion::Expired
            } else {
                Deletion::Explicit
            })
        }
        _ => None,
    };
    if has(WithMetaOptions::IS_EXPIRATION) && deleted.is_none() {
        let context = "only a deletion can be an expiration";
        return Err(Failure::new(Status::Invalid, context));
    }
    let with = kedge_bucket::WithMeta {
        cas: wire.cas,
        rev: wire.rev_seqno,
        flags: wire.flags,
        expiry: wire.expiry,
        deleted,
        only_new: matches!(command.opcode, Opcode::AddWithMeta | Opcode::AddqWithMeta),
        new_cas: has(WithMetaOptions::REGENERATE_CAS),
        skip_conflicts: has(WithMetaOptions::SKIP_CONFLICT_RESOLUTION),
        for_last_write: has(WithMetaOptions::FORCE_ACCEPT),
        value: wire.value,
        datatype: wire.datatype,
    };
    let write = target.write(command.session, &command.infos, wire.expected_cas);
    let outcome = target
        .bucket
        .write_with_meta(command.turn.ctx(), &write, &with)?;
    Ok(command.mutated(outcome))
}

pub(super) fn returning(command: &mut Command<'_, '_, '_>) -> Result<Done, Failure> {
    let wire = ReturnMeta::decode(command.request)?;
    let target = command
        .session
        .target(command.request, wire.key, Rights::WRITE)?;
    let store = |mode| Returning::Store {
        mode,
        value: wire.value,
        datatype: wire.datatype,
        flags: wire.flags,
        expiry: wire.expiry,
    };
    let what = match wire.kind {
        ReturnMetaKind::Set => store(StoreMode::Set),
        ReturnMetaKind::Add => store(StoreMode::Add),
        ReturnMetaKind::Delete => Returning::Delete,
    };
    let write = target.write(command.session, &command.infos, wire.cas);
    let ctx = command.turn.ctx();
    match target.bucket.write_returning(ctx, &write, &what)? {
        Outcome::Done((mutated, meta)) => {
            compose(&command.composer, &mutated, &meta, command.out);
            Ok(Done::Replied)
        }
        Outcome::Parked => Ok(command.park_as(ReplyKind::Returned)),
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
