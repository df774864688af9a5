//! SET, ADD, REPLACE and their quiet forms.

use kedge_bucket::StoreMode;
use kedge_protocol::binary::Opcode;
use kedge_protocol::binary::commands::Store;

use super::context::{CommandContext, CommandOutcome};
use crate::session::{CommandFailure, Rights};

pub(super) fn store(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let (mode, needed) = match command.opcode {
        Opcode::Add | Opcode::Addq => (StoreMode::Add, Rights::INSERT),
        Opcode::Replace | Opcode::Replaceq => (StoreMode::Replace, Rights::UPSERT),
        _ => (StoreMode::Set, Rights::UPSERT),
    };
    let store = Store::decode(command.request)?;
    let target = command
        .session
        .target(command.request, store.key, needed, &mut command.key)?;
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
