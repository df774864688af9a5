//! APPEND, PREPEND and their quiet forms.

use kedge_bucket::ConcatMode;
use kedge_protocol::binary::Opcode;
use kedge_protocol::binary::commands::Concat;

use super::context::{CommandContext, CommandOutcome};
use crate::session::{CommandFailure, Rights};

pub(super) fn concat(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let mode = match command.opcode {
        Opcode::Prepend | Opcode::Prependq => ConcatMode::Prepend,
        _ => ConcatMode::Append,
    };
    let concat = Concat::decode(command.request)?;
    let target = command.session.target(
        command.request,
        concat.key,
        Rights::UPSERT,
        &mut command.key,
    )?;
    let write = target.write(command.session, &command.infos, concat.cas);
    let ctx = command.turn.ctx();
    let outcome =
        target
            .bucket
            .documents()
            .concat(ctx, &write, mode, concat.value, concat.datatype)?;
    Ok(command.mutated(outcome))
}
