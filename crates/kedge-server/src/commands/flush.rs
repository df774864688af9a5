//! FLUSH and FLUSHQ.

use kedge_protocol::binary::commands::Flush;
use kedge_types::Status;

use super::{Command, Done};
use crate::session::{Failure, ReplyKind, Rights};

/// Empties the bucket, where the bucket allows it. A delay is refused: nothing empties a bucket behind its clients.
pub(super) fn flush(command: &mut Command<'_, '_, '_>) -> Result<Done, Failure> {
    let wire = Flush::decode(command.request)?;
    let bucket = command.session.bucket(Rights::FLUSH)?;
    if wire.delay != 0 {
        return Err(Failure::new(
            Status::NotSupported,
            "a delayed flush is not supported",
        ));
    }
    let bucket = bucket.clone();
    let begun = bucket.begin_flush_all(command.turn.ctx(), command.tells_end());
    begun.map_err(|status| Failure::new(status, "flush is not enabled for the bucket"))?;
    Ok(command.park_as(ReplyKind::StatusOnly))
}
