//! GET_LOCKED and UNLOCK_KEY.

use kedge_protocol::binary::Feature;
use kedge_protocol::binary::commands::{GetLocked, Unlock};
use kedge_types::Status;

use super::{Command, Done};
use crate::session::{Failure, Rights};

/// A client that does not know the status for a lock is told to try again. For writes that would be wrong: they get
/// the status of a CAS that does not match instead.
fn soften(command: &Command<'_, '_, '_>, status: Status) -> Failure {
    if status == Status::Locked && !command.session.features.contains(Feature::Xerror) {
        return Status::TemporaryFailure.into();
    }
    status.into()
}

pub(super) fn get_locked(command: &mut Command<'_, '_, '_>) -> Result<Done, Failure> {
    let lock = GetLocked::decode(command.request)?;
    let needed = Rights::READ.and(Rights::WRITE);
    let target = command.session.target(command.request, lock.key, needed)?;
    let ctx = command.turn.ctx();
    let secs = lock.lock_secs.unwrap_or(0);
    let result = target
        .bucket
        .get_and_lock(ctx, target.vb, &target.key, secs, |document| {
            command
                .composer
                .document(document.item, document.cas, &[], command.out)
        });
    result.map_err(|status| soften(command, status))??;
    Ok(Done::Replied)
}

pub(super) fn unlock(command: &mut Command<'_, '_, '_>) -> Result<Done, Failure> {
    let unlock = Unlock::decode(command.request)?;
    let target = command
        .session
        .target(command.request, unlock.key, Rights::WRITE)?;
    let result = target
        .bucket
        .unlock(command.turn.ctx(), target.vb, &target.key, unlock.cas);
    result.map_err(|status| soften(command, status))?;
    Ok(command.success())
}
