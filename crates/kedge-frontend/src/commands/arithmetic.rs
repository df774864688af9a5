//! INCREMENT, DECREMENT and their quiet forms.

use kedge_bucket::{CounterUpdate, Outcome};
use kedge_protocol::binary::Opcode;
use kedge_protocol::binary::commands::{self, encode_counter};

use super::context::{CommandContext, CommandOutcome};
use crate::session::{CommandFailure, Rights};

pub(super) fn arithmetic(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let wire = commands::Arithmetic::decode(command.request)?;
    let op = CounterUpdate {
        negative: matches!(command.opcode, Opcode::Decrement | Opcode::Decrementq),
        delta: wire.delta,
        initial: wire.creates().then_some(wire.initial),
        expiry: if wire.creates() { wire.expiry } else { 0 },
    };
    let target = command.session.target(
        command.request,
        wire.key,
        Rights::READ.and(Rights::UPSERT),
        &mut command.key,
    )?;
    let write = target.write(command.session, &command.infos, command.request.cas);
    match target
        .bucket
        .documents()
        .arithmetic(command.turn.ctx(), &write, op)?
    {
        Outcome::Done((mutated, number)) => {
            command
                .composer
                .mutation(&mutated, &encode_counter(number), command.out);
            Ok(CommandOutcome::Replied)
        }
        Outcome::Parked => Ok(command.park()),
    }
}
