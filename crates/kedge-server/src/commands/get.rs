//! GET, GETQ, GETK, GETKQ, GET_REPLICA.

use kedge_protocol::binary::Opcode;
use kedge_protocol::binary::commands::Get;

use super::{Command, Done};
use crate::session::{Failure, Rights};

pub(super) fn get(command: &mut Command<'_, '_, '_>) -> Result<Done, Failure> {
    let Get { key } = Get::decode(command.request)?;
    let echoed = match command.opcode {
        Opcode::Getk | Opcode::Getkq => key,
        _ => &[],
    };
    let target = command.session.target(command.request, key, Rights::READ)?;
    let ctx = command.turn.ctx();
    let read = target.read(command.session);
    let outcome = target.bucket.get(ctx, &read, |document| {
        command
            .composer
            .document(document.item, document.cas, echoed, command.out)
    })?;
    command.composed(outcome)
}

/// From a vBucket that is a replica here.
pub(super) fn replica(command: &mut Command<'_, '_, '_>) -> Result<Done, Failure> {
    let Get { key } = Get::decode(command.request)?;
    let target = command.session.target(command.request, key, Rights::READ)?;
    let ctx = command.turn.ctx();
    let read = target.read(command.session);
    let outcome = target.bucket.get_replica(ctx, &read, |document| {
        command
            .composer
            .document(document.item, document.cas, &[], command.out)
    })?;
    command.composed(outcome)
}
