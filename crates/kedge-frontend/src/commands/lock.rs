//! GET_LOCKED and UNLOCK_KEY.

use kedge_bucket::Outcome;
use kedge_protocol::binary::commands::{GetLocked, Unlock};
use kedge_protocol::binary::{Feature, Features};
use kedge_types::Status;

use super::context::{CommandContext, CommandOutcome};
use crate::session::{CommandFailure, Rights};

/// The status for a locked document that the client knows: without Xerror, `TemporaryFailure`. Writes get the status of
/// a CAS mismatch instead.
pub(super) fn soften(features: Features, status: Status) -> CommandFailure {
    if status == Status::Locked && !features.contains(Feature::Xerror) {
        return Status::TemporaryFailure.into();
    }
    status.into()
}

pub(super) fn get_locked(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let lock = GetLocked::decode(command.request)?;
    let needed = Rights::READ.and(Rights::UPSERT);
    let target = command
        .session
        .target(command.request, lock.key, needed, &mut command.key)?;
    let ctx = command.turn.ctx();
    let secs = lock.lock_secs.unwrap_or(0);
    let read = target.read(command.session);
    let result = target
        .bucket
        .documents()
        .get_and_lock(ctx, &read, secs, |document| {
            command.composer.shown(document, &[], command.out)
        });
    let outcome = result.map_err(|status| soften(command.session.protocol.features, status))?;
    command.composed(outcome, &[])
}

pub(super) fn unlock(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let unlock = Unlock::decode(command.request)?;
    let target = command.session.target(
        command.request,
        unlock.key,
        Rights::UPSERT,
        &mut command.key,
    )?;
    let read = target.read(command.session);
    let result = target
        .bucket
        .documents()
        .unlock(command.turn.ctx(), &read, unlock.cas);
    match result.map_err(|status| soften(command.session.protocol.features, status))? {
        Outcome::Done(()) => Ok(command.success()),
        Outcome::Parked => Ok(command.park()),
    }
}
