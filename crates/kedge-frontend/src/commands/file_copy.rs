//! PREPARE_SNAPSHOT, GET_FILE_FRAGMENT and RELEASE_SNAPSHOT: a vBucket's file for a new copy on another node.

use kedge_bucket::{Completion, FilePart, PreparedFile};
use kedge_node::output::Output;
use kedge_protocol::binary::Response;
use kedge_protocol::binary::commands::{
    FileFragment, GetFileFragment, HeaderOnly, PreparedSnapshot, ReleaseSnapshot,
};
use kedge_types::Status;

use super::complete::unexpected;
use super::context::{CommandContext, CommandOutcome};
use crate::session::{CommandFailure, Composer, ReplyKind, Rights};

/// The extras and the value of a response.
type Parts = (Vec<u8>, Vec<u8>);

pub(super) fn prepare(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    HeaderOnly::decode(command.request)?;
    let bucket = command.session.bucket(Rights::MANAGE)?.clone();
    let done = callback(command, |file: PreparedFile| {
        let prepared = PreparedSnapshot {
            id: file.id,
            bytes: file.bytes,
            high_seqno: file.high_seqno.get(),
            documents: file.documents,
        };
        (Vec::new(), prepared.encode())
    });
    bucket.copies().prepare(command.request.vb, done);
    Ok(command.park_as(ReplyKind::FileRead))
}

pub(super) fn fragment(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let GetFileFragment { id, offset, length } = GetFileFragment::decode(command.request)?;
    let bucket = command.session.bucket(Rights::MANAGE)?.clone();
    let done = callback(command, |part: FilePart| {
        let reply = FileFragment {
            checksum: part.checksum,
            pause_us: u32::try_from(part.pause.as_micros()).unwrap_or(u32::MAX),
        };
        (reply.encode().to_vec(), part.bytes)
    });
    let vb = command.request.vb;
    bucket.copies().read_part(vb, id, offset, length, done);
    Ok(command.park_as(ReplyKind::FileRead))
}

pub(super) fn release(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let ReleaseSnapshot { id } = ReleaseSnapshot::decode(command.request)?;
    let bucket = command.session.bucket(Rights::MANAGE)?;
    bucket.copies().release(command.request.vb, id)?;
    Ok(command.success())
}

/// Returns the callback with which a task completes the command, which is parked next.
fn callback<T, C: FnOnce(T) -> Parts + Send>(
    command: &CommandContext<'_, '_, '_>,
    compose: C,
) -> impl FnOnce(Result<T, Status>) + Send + use<T, C> {
    let completions = command.turn.shared.registry.completions().clone();
    let cookie = command.session.next_cookie();
    move |result: Result<T, Status>| {
        let result = result.map(compose);
        completions.complete(&mut vec![(cookie, Completion::FileRead { result })]);
    }
}

/// Composes the response to PREPARE_SNAPSHOT or GET_FILE_FRAGMENT.
///
/// # Errors
/// The status of the failure.
pub(super) fn read(
    composer: &Composer,
    completion: Completion,
    out: &mut Output,
) -> Result<(), Status> {
    let Completion::FileRead { result } = completion else {
        return Err(unexpected(completion));
    };
    let (extras, value) = result?;
    Response {
        extras: &extras,
        value: &value,
        ..composer.response(Status::Success)
    }
    .write(out.buffer());
    Ok(())
}
