//! DCP_OPEN. Later DCP messages of the connection are handled by [`crate::dcp`].

use kedge_node::audit::{AuditEvent, EventKind};
use kedge_protocol::binary::ConnectionKind;
use kedge_protocol::binary::commands::dcp::DcpOpen;
use kedge_types::Status;

use super::context::{CommandContext, CommandOutcome};
use crate::dcp::DcpSession;
use crate::session::{CommandFailure, Rights};

pub(super) fn open(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    if command.session.kind() != ConnectionKind::Couchbase {
        return Err(Status::NotSupported.into());
    }
    let wire = DcpOpen::decode(command.request)?;
    let bucket = command.session.bucket_somewhere(Rights::STREAM)?;
    let (id, rights) = (command.session.id(), command.session.privileges.rights());
    let features = command.session.protocol.features;
    let dcp = DcpSession::open(&wire, id, bucket, rights, features, command.turn)?;
    let audit = command.turn.shared.users.audit();
    audit.put(&AuditEvent {
        peer: Some(command.session.peer),
        local: Some(command.session.local),
        bucket: Some(bucket.name()),
        request: &String::from_utf8_lossy(wire.name),
        ..AuditEvent::new(
            EventKind::DcpOpened,
            command.session.login.user().unwrap_or_default(),
        )
    });
    command.session.dcp.open(dcp);
    Ok(command.success())
}

/// Answers a DCP message on a connection that was not opened for DCP.
pub(super) fn not_open(
    _: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let context = "DCP_OPEN comes first on a connection";
    Err(CommandFailure::new(Status::Invalid, context))
}
