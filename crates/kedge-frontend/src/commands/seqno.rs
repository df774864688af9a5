//! SEQNO_PERSISTENCE, GET_ALL_VB_SEQNOS, GET_FAILOVER_LOG.

use kedge_bucket::{Outcome, VbState};
use kedge_protocol::binary::Feature;
use kedge_protocol::binary::commands::{
    FailoverEntry, GetAllVbSeqnos, HeaderOnly, SeqnoPersistence, VbStateFilter,
    push_failover_entry, push_vb_seqno,
};
use kedge_types::{CollectionId, Datatype, Status};

use super::context::{CommandContext, CommandOutcome};
use crate::session::{CommandFailure, Rights};

pub(super) fn persistence(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let wire = SeqnoPersistence::decode(command.request)?;
    let bucket = command.session.bucket_somewhere(Rights::READ)?;
    let cookie = command.session.next_cookie();
    let ctx = command.turn.ctx();
    match bucket.seqno_persistence(ctx, command.request.vb, wire.seqno, cookie)? {
        Outcome::Done(()) => Ok(command.success()),
        Outcome::Parked => Ok(command.park()),
    }
}

pub(super) fn all_vbuckets(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let wire = GetAllVbSeqnos::decode(command.request)?;
    let bucket = match wire.collection {
        Some(collection) => command.session.collection(collection, Rights::READ)?,
        None => command.session.bucket_somewhere(Rights::READ)?,
    };
    // A client without collections sees the seqnos of the default collection.
    let knows = command
        .session
        .protocol
        .features
        .contains(Feature::Collections);
    let collection = wire
        .collection
        .or((!knows).then_some(CollectionId::DEFAULT));
    if let Some(id) = collection
        && bucket.collections().manifest().collection(id).is_none()
    {
        return Err(Status::UnknownCollection.into());
    }
    let state = match wire.state {
        None => None,
        Some(VbStateFilter::Active) => Some(VbState::Active),
        Some(VbStateFilter::Replica) => Some(VbState::Replica),
        Some(VbStateFilter::Pending) => Some(VbState::Pending),
        Some(VbStateFilter::Dead) => Some(VbState::Dead),
        Some(VbStateFilter::Alive) => None,
    };
    let visible_only = !command
        .session
        .protocol
        .features
        .contains(Feature::SyncReplication);
    let mut value = Vec::new();
    for (vb, seqno) in bucket.vbucket_seqnos(state, visible_only, collection) {
        push_vb_seqno(vb, seqno, &mut value);
    }
    command.composer.value(Datatype::RAW, &value, command.out);
    Ok(CommandOutcome::Replied)
}

pub(super) fn failover_log(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    HeaderOnly::decode(command.request)?;
    let bucket = command.session.bucket_somewhere(Rights::READ)?;
    let mut value = Vec::new();
    for (vb_uuid, seqno) in bucket.failover_log(command.turn.ctx(), command.request.vb)? {
        push_failover_entry(FailoverEntry { vb_uuid, seqno }, &mut value);
    }
    command.composer.value(Datatype::RAW, &value, command.out);
    Ok(CommandOutcome::Replied)
}
