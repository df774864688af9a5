//! COMPACT_DB: a compaction of one vBucket's file, answered at its end.

use kedge_bucket::{CompactionReport, CompactionRequest};
use kedge_protocol::binary::commands::CompactDb;
use kedge_types::Status;

use super::context::{CommandContext, CommandOutcome};
use crate::session::{CommandFailure, ReplyKind, Rights};

pub(super) fn compact(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let wire = CompactDb::decode(command.request)?;
    let bucket = command.session.bucket(Rights::MANAGE)?;
    let seqno = wire.purge_before_seqno;
    let request = CompactionRequest {
        vbuckets: Some(vec![command.request.vb]),
        purge_before_secs: (wire.purge_before_secs > 0)
            .then(|| u32::try_from(wire.purge_before_secs).unwrap_or(u32::MAX)),
        purge_before_seqno: (seqno.get() > 0).then_some(seqno),
        drop_deletes: wire.drop_deletes,
    };
    let ticket = bucket.persistence().compactions().compact(&request)?;
    let done = command.completion_callback();
    ticket.when_done(move |report| done(status_of(&report)));
    Ok(command.park_as(ReplyKind::StatusOnly))
}

fn status_of(report: &CompactionReport) -> Result<(), Status> {
    if report.failed > 0 {
        Err(Status::Internal)
    } else if report.cancelled > 0 {
        Err(Status::TemporaryFailure)
    } else {
        Ok(())
    }
}
