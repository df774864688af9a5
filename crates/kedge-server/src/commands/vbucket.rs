//! GET_VBUCKET, SET_VBUCKET and DEL_VBUCKET.

use kedge_bucket::{Completion, Cookie, VbState};
use kedge_protocol::binary::commands::{DelVbucket, HeaderOnly, SetVbucket};
use kedge_types::{Datatype, Status};

use super::{Command, Done};
use crate::session::{Failure, ReplyKind, Rights};

pub(super) fn get(command: &mut Command<'_, '_, '_>) -> Result<Done, Failure> {
    HeaderOnly::decode(command.request)?;
    let state = command
        .session
        .bucket(Rights::STATS)?
        .vbucket_state(command.request.vb)?;
    let value = u32::from(state as u8).to_be_bytes();
    command.composer.value(Datatype::RAW, &value, command.out);
    Ok(Done::Replied)
}

/// It is answered when the state is durable.
pub(super) fn set(command: &mut Command<'_, '_, '_>) -> Result<Done, Failure> {
    let wire = SetVbucket::decode(command.request)?;
    let state = VbState::from_number(wire.state).ok_or(Status::Invalid)?;
    let bucket = command.session.bucket(Rights::MANAGE)?.clone();
    if !wire.details.is_empty() {
        return Err(Failure::new(
            Status::NotSupported,
            "a vBucket has no topology yet",
        ));
    }
    // What is wrong is said before anything is begun.
    if command.request.vb.get() >= bucket.vbuckets() {
        return Err(Status::NotMyVbucket.into());
    }
    let (cookie, done) = told(command);
    bucket.begin_set_vbucket(command.request.vb, state, move |result| {
        done(cookie, result);
    });
    Ok(command.park_as(ReplyKind::StatusOnly))
}

/// The vBucket answers nothing from then on. Whether the answer waits until it is gone from the disk, the client says.
pub(super) fn delete(command: &mut Command<'_, '_, '_>) -> Result<Done, Failure> {
    let wire = DelVbucket::decode(command.request)?;
    let bucket = command.session.bucket(Rights::MANAGE)?.clone();
    let vb = command.request.vb;
    if !wire.waits {
        bucket.begin_delete_vbucket(vb, |_| ())?;
        return Ok(command.success());
    }
    let (cookie, done) = told(command);
    bucket.begin_delete_vbucket(vb, move |result| {
        done(cookie, result);
    })?;
    Ok(command.park_as(ReplyKind::StatusOnly))
}

/// The name of a command that is to be parked, and how its end is told.
fn told(
    command: &mut Command<'_, '_, '_>,
) -> (
    Cookie,
    impl FnOnce(Cookie, Result<(), Status>) + Send + 'static,
) {
    let completions = command.turn.shared.registry.completions().clone();
    let done = move |cookie, result| {
        let completion = Completion::Persisted(result);
        completions.complete(&mut vec![(cookie, completion)]);
    };
    (command.session.next_cookie(), done)
}
