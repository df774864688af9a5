//! NOOP, VERSION, VERBOSITY, QUIT, QUITQ.

use kedge_cluster::CLAIMED_VERSION;
use kedge_protocol::binary::commands::{HeaderOnly, Verbosity};
use kedge_protocol::binary::{ConnectionKind, Opcode};
use kedge_types::Datatype;

use super::context::{CommandContext, CommandOutcome};
use crate::session::CommandFailure;

/// The version for memcached clients, which expect three numbers: the claimed version up to the first dash.
pub(crate) fn plain_version() -> &'static str {
    CLAIMED_VERSION.split('-').next().unwrap_or(CLAIMED_VERSION)
}

pub(super) fn noop(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    HeaderOnly::decode(command.request)?;
    Ok(command.success())
}

pub(super) fn version(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    HeaderOnly::decode(command.request)?;
    let version = match command.session.kind() {
        ConnectionKind::Couchbase => CLAIMED_VERSION,
        ConnectionKind::Memcached => plain_version(),
    };
    command
        .composer
        .value(Datatype::RAW, version.as_bytes(), command.out);
    Ok(CommandOutcome::Replied)
}

/// VERBOSITY: accepted without effect, as memcached clients expect it to work. The log level is a setting of the
/// server.
pub(super) fn verbosity(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    Verbosity::decode(command.request)?;
    Ok(command.success())
}

/// Answers a command that is known but not served.
pub(super) fn unserved(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let (number, kind) = (command.opcode.wire(), command.session.kind());
    Err(Opcode::unsupported_status(number, kind).into())
}

pub(super) fn quit(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    HeaderOnly::decode(command.request)?;
    command.composer.success(command.out);
    Ok(CommandOutcome::Close)
}
