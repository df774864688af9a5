//! GET_CMD_TIMER: the histogram of the durations of one opcode.

use kedge_bucket::TimingSnapshot;
use kedge_protocol::binary::Opcode;
use kedge_types::{Datatype, Status};

use super::context::{CommandContext, CommandOutcome};
use super::table::row;
use crate::histogram;
use crate::session::{CommandFailure, Rights};

/// The bucket name that stands for all buckets.
const ALL: &[u8] = b"/all/";

/// GET_CMD_TIMER. The extras are the opcode; the key is the bucket, empty for the selected one. Opcodes of a family
/// share a histogram.
pub(super) fn get(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let request = command.request;
    let &[number] = request.extras else {
        return Err(CommandFailure::new(
            Status::Invalid,
            "extras must be one opcode",
        ));
    };
    if !request.value.is_empty() {
        return Err(Status::Invalid.into());
    }
    let shared = command.turn.shared;
    let opcode = Opcode::from_wire(number, command.session.kind()).ok_or(Status::KeyNotFound)?;
    let name = row(opcode).timing.ok_or(Status::KeyNotFound)?.name();
    let buckets = match request.key {
        b"" => vec![command.session.bucket(Rights::STATS)?.clone()],
        ALL => shared.registry.list(),
        name => {
            let name = std::str::from_utf8(name).map_err(|_| Status::KeyNotFound)?;
            vec![shared.registry.get(name).ok_or(Status::KeyNotFound)?]
        }
    };
    let roles = command.session.login.roles(&shared.users.read());
    let mut sum = TimingSnapshot::default();
    for bucket in buckets {
        let selected = command
            .session
            .bucket
            .as_ref()
            .is_some_and(|b| b.name() == bucket.name());
        let rights = match &roles {
            Some(roles) => Rights::of(roles, Some(bucket.name())),
            None if selected => command.session.privileges.rights(),
            None => Rights::NONE,
        };
        if !rights.allow(Rights::STATS) {
            return Err(Status::AccessDenied.into());
        }
        if let Some(snapshot) = bucket.timings().snapshot(name) {
            add(&mut sum, snapshot);
        }
    }
    command.composer.value(
        Datatype::JSON,
        histogram::to_json(&sum).as_bytes(),
        command.out,
    );
    Ok(CommandOutcome::Replied)
}

/// Adds a histogram with the same bounds.
fn add(sum: &mut TimingSnapshot, other: TimingSnapshot) {
    sum.count += other.count;
    for (low, high, count) in other.buckets {
        match sum.buckets.binary_search_by_key(&low, |(low, _, _)| *low) {
            Ok(at) => sum.buckets[at].2 += count,
            Err(at) => sum.buckets.insert(at, (low, high, count)),
        }
    }
}
