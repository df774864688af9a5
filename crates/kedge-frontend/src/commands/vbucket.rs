//! GET_VBUCKET, SET_VBUCKET and DEL_VBUCKET.

use kedge_bucket::{NodeName, Topology, VbRole, VbState};
use kedge_protocol::binary::commands::{DelVbucket, HeaderOnly, SetVbucket};
use kedge_types::{Datatype, Status};

use super::context::{CommandContext, CommandOutcome};
use crate::session::{CommandFailure, ReplyKind, Rights};

pub(super) fn get(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    HeaderOnly::decode(command.request)?;
    let state = command
        .session
        .bucket(Rights::STATS)?
        .vbucket_state(command.request.vb)?;
    let value = u32::from(state as u8).to_be_bytes();
    command.composer.value(Datatype::RAW, &value, command.out);
    Ok(CommandOutcome::Replied)
}

/// SET_VBUCKET. It is answered when the state is durable.
pub(super) fn set(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let wire = SetVbucket::decode(command.request)?;
    let state = VbState::from_number(wire.state).ok_or(Status::Invalid)?;
    let bucket = command.session.bucket(Rights::MANAGE)?.clone();
    let details = wire
        .parse_details()
        .map_err(|status| CommandFailure::new(status, "the JSON is none that a vBucket has"))?;
    if details.use_snapshot.is_some() || details.expected_next_state.is_some() {
        return Err(CommandFailure::new(
            Status::NotSupported,
            "vBuckets are not made of files that were copied",
        ));
    }
    let role = VbRole {
        topology: details.topology.map(topology).transpose()?,
        ..state.into()
    };
    // Errors are answered before the change begins.
    if command.request.vb.get() >= bucket.vbuckets() {
        return Err(Status::NotMyVbucket.into());
    }
    let done = command.completion_callback();
    bucket
        .states()
        .begin_set_vbucket(command.request.vb, role, done);
    Ok(command.park_as(ReplyKind::StatusOnly))
}

fn topology(chains: Vec<Vec<Option<String>>>) -> Result<Topology, CommandFailure> {
    let name = |name: Option<String>| match name {
        None => Ok(None),
        Some(name) => NodeName::new(&name).map(Some).ok_or(CommandFailure::new(
            Status::Invalid,
            "a name in the topology is none of a node",
        )),
    };
    let chain = |chain: Vec<Option<String>>| chain.into_iter().map(name).collect();
    let chains = chains
        .into_iter()
        .map(chain)
        .collect::<Result<_, CommandFailure>>()?;
    Ok(Topology::new(chains)?)
}

/// DEL_VBUCKET. The vBucket serves no commands from then on. With `async=0`, the answer waits until it is removed from
/// disk.
pub(super) fn delete(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let wire = DelVbucket::decode(command.request)?;
    let bucket = command.session.bucket(Rights::MANAGE)?.clone();
    let vb = command.request.vb;
    if !wire.waits {
        bucket.states().begin_delete_vbucket(vb, |_| ())?;
        return Ok(command.success());
    }
    bucket
        .states()
        .begin_delete_vbucket(vb, command.completion_callback())?;
    Ok(command.park_as(ReplyKind::StatusOnly))
}
