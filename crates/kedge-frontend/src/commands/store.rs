//! SET, ADD, REPLACE and their quiet forms.

use kedge_bucket::StoreMode;
use kedge_protocol::binary::Opcode;
use kedge_protocol::binary::commands::Store;

use super::context::{CommandContext, CommandOutcome};
use crate::session::{CommandFailure, Rights};

pub(super) fn store(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let mode = match command.opcode {
        Opcode::Add | Opcode::Addq => StoreMode::Add,
        Opcode::Replace | Opcode::Replaceq => StoreMode::Replace,
        _ => StoreMode::Set,
    };
    let store = Store::decode(command.request)?;
    let target =
        command
            .session
            .target(command.request, store.key, Rights::WRITE, &mut command.key)?;
    let outcome = target.bucket.documents().store(
        command.turn.ctx(),
        &target.write(command.session, &command.infos, store.cas),
        &kedge_bucket::StoreArgs {
            mode,
            value: store.value,
            datatype: store.datatype,
            flags: store.flags,
            expiry: store.expiry,
        },
    )?;
    Ok(command.mutated(outcome))
}
