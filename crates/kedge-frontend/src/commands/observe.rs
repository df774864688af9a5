//! OBSERVE and OBSERVE_SEQNO.

use kedge_bucket::{Completion, ObserveState, Outcome, Read};
use kedge_node::output::Output;
use kedge_protocol::binary::commands::{
    KeyState, Observe, ObserveReply, ObserveSeqno, ObserveSeqnoReply, ObservedKey,
};
use kedge_types::{Cas, Datatype, KeyBuffer};

use super::complete::unexpected;
use super::context::{CommandContext, CommandOutcome};
use crate::session::{
    CommandFailure, ParkedRequest, PendingObserve, ReplyKind, RequestTag, Rights, Session,
    SessionTurn,
};

type ObservedState = (ObserveState, Cas);

fn push(asked: ObservedKey<'_>, (state, cas): ObservedState, value: &mut Vec<u8>) {
    let state = match state {
        ObserveState::NotPersisted => KeyState::NotPersisted,
        ObserveState::Persisted => KeyState::Persisted,
        ObserveState::NotFound => KeyState::NotFound,
        ObserveState::DeletedNotPersisted => KeyState::DeletedNotPersisted,
    };
    ObserveReply {
        key: asked,
        state,
        cas,
    }
    .encode(value);
}

fn look(
    session: &Session,
    turn: &SessionTurn<'_>,
    asked: ObservedKey<'_>,
) -> Result<Outcome<ObservedState>, CommandFailure> {
    let mut buffer = KeyBuffer::EMPTY;
    let key = session.protocol.document_key(asked.key, &mut buffer)?;
    let bucket = session.collection(key.collection(), Rights::READ)?;
    let read = Read {
        vb: asked.vb,
        key,
        cookie: session.next_cookie(),
    };
    Ok(bucket.documents().observe_key(turn.ctx(), &read)?)
}

pub(super) fn keys(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let wire = Observe::decode(command.request)?;
    let mut value = Vec::new();
    let mut keys = wire.keys();
    while let Some(asked) = keys.next() {
        match look(command.session, command.turn, asked)? {
            Outcome::Done(seen) => push(asked, seen, &mut value),
            Outcome::Parked => {
                let rest = std::iter::once(asked).chain(keys);
                let keys = rest.map(|asked| (asked.vb, asked.key.into())).collect();
                return Ok(
                    command.park_as(ReplyKind::Observe(Box::new(PendingObserve { value, keys })))
                );
            }
        }
    }
    command.composer.value(Datatype::RAW, &value, command.out);
    Ok(CommandOutcome::Replied)
}

/// Resumes an OBSERVE whose key was read.
///
/// # Errors
/// The failure that the reply has instead of success.
pub(crate) fn observed(
    session: &mut Session,
    turn: &mut SessionTurn<'_>,
    tag: RequestTag,
    mut observing: Box<PendingObserve>,
    completion: Completion,
    out: &mut Output,
) -> Result<CommandOutcome, CommandFailure> {
    let Completion::Observed { result } = completion else {
        return Err(unexpected(completion).into());
    };
    let mut seen = result?;
    while let Some((vb, key)) = observing.keys.pop_front() {
        push(ObservedKey { vb, key: &key }, seen, &mut observing.value);
        let Some((vb, key)) = observing.keys.front() else {
            break;
        };
        match look(session, turn, ObservedKey { vb: *vb, key })? {
            Outcome::Done(next) => seen = next,
            Outcome::Parked => {
                let request = ParkedRequest {
                    tag,
                    kind: ReplyKind::Observe(observing),
                };
                // Alone if no other is in flight, as it may have a barrier.
                let alone = session.in_flight() == 0 || !tag.opcode.is_reorderable();
                session.park(turn, request, alone);
                return Ok(CommandOutcome::Parked);
            }
        }
    }
    tag.composer(&session.protocol)
        .value(Datatype::RAW, &observing.value, out);
    Ok(CommandOutcome::Replied)
}

pub(super) fn seqno(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let wire = ObserveSeqno::decode(command.request)?;
    let bucket = command.session.bucket_somewhere(Rights::READ)?;
    let vb = command.request.vb;
    let observed = bucket.observe_seqno(command.turn.ctx(), vb, wire.vb_uuid)?;
    let mut value = Vec::with_capacity(43);
    ObserveSeqnoReply {
        vb,
        vb_uuid: observed.uuid,
        persisted: observed.persisted,
        current: observed.current,
        failed_over: observed.failover,
    }
    .encode(&mut value);
    command.composer.value(Datatype::RAW, &value, command.out);
    Ok(CommandOutcome::Replied)
}
