//! TOUCH, GAT, GATQ, and GATK, GATKQ of memcached clients.

use kedge_bucket::Outcome;
use kedge_protocol::binary::Opcode;
use kedge_protocol::binary::commands::Touch;

use super::context::{CommandContext, CommandOutcome};
use crate::session::{CommandFailure, Rights};

/// TOUCH. Clients take extras in the reply for an error, so it has none, not even a mutation token.
pub(super) fn touch(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let touch = Touch::decode(command.request)?;
    let target =
        command
            .session
            .target(command.request, touch.key, Rights::UPSERT, &mut command.key)?;
    let write = target.write(command.session, &command.infos, command.request.cas);
    match target
        .bucket
        .documents()
        .touch(command.turn.ctx(), &write, touch.expiry)?
    {
        Outcome::Done(mutated) => {
            command.composer.cas(mutated.cas, command.out);
            Ok(CommandOutcome::Replied)
        }
        Outcome::Parked => Ok(command.park()),
    }
}

pub(super) fn get_and_touch(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let touch = Touch::decode(command.request)?;
    let echoed = match command.opcode {
        Opcode::Gatk | Opcode::Gatkq => touch.key,
        _ => &[],
    };
    let needed = Rights::READ.and(Rights::UPSERT);
    let target = command
        .session
        .target(command.request, touch.key, needed, &mut command.key)?;
    let write = target.write(command.session, &command.infos, command.request.cas);
    let ctx = command.turn.ctx();
    let outcome =
        target
            .bucket
            .documents()
            .get_and_touch(ctx, &write, touch.expiry, |document| {
                command.composer.shown(document, echoed, command.out)
            })?;
    command.composed(outcome, echoed)
}
