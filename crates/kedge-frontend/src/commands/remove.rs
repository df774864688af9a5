//! DELETE and DELETEQ.

use kedge_protocol::binary::commands::Remove;

use super::context::{CommandContext, CommandOutcome};
use crate::session::{CommandFailure, Rights};

pub(super) fn remove(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let remove = Remove::decode(command.request)?;
    let target = command.session.target(
        command.request,
        remove.key,
        Rights::DELETE,
        &mut command.key,
    )?;
    let write = target.write(command.session, &command.infos, remove.cas);
    let outcome = target
        .bucket
        .documents()
        .delete(command.turn.ctx(), &write)?;
    Ok(command.mutated(outcome))
}
