//! FLUSH and FLUSHQ.

use kedge_protocol::binary::ConnectionKind;
use kedge_protocol::binary::commands::Flush;
use kedge_types::{Expiry, Status};

use super::context::{CommandContext, CommandOutcome};
use crate::session::{CommandFailure, ReplyKind, Rights};

/// Empties the bucket if its settings allow that; for plain memcached clients only if their port allows it, too. A
/// delay is for them only: a Couchbase bucket is not emptied later on.
pub(super) fn flush(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    const NOT_ENABLED: &str = "flush is not enabled for the bucket";
    let wire = Flush::decode(command.request)?;
    let shared = command.turn.shared;
    let is_memcached = command.session.kind() == ConnectionKind::Memcached;
    if is_memcached && !shared.memcached.rules.flush_all {
        return Err(CommandFailure::new(
            Status::AuthError,
            "flush_all not allowed",
        ));
    }
    let bucket = command.session.bucket(Rights::FLUSH)?.clone();
    let now_secs = command.turn.now.unix_secs();
    let at_secs = u64::from(Expiry::from_wire(wire.delay, now_secs).0);
    if wire.delay != 0 && !is_memcached {
        return Err(CommandFailure::new(
            Status::NotSupported,
            "a delayed flush is not supported",
        ));
    }
    if at_secs > now_secs {
        let planned = shared.delayed_flush.plan(&bucket, at_secs);
        planned.map_err(|status| CommandFailure::new(status, NOT_ENABLED))?;
        return Ok(command.success());
    }
    if is_memcached {
        shared.delayed_flush.cancel();
    }
    let begun = bucket.begin_flush_all(command.turn.ctx(), command.completion_callback());
    begun.map_err(|status| CommandFailure::new(status, NOT_ENABLED))?;
    Ok(command.park_as(ReplyKind::StatusOnly))
}
