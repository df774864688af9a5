//! OBSERVE and OBSERVE_SEQNO.

use kedge_bucket::ObserveState;
use kedge_protocol::binary::commands::{
    KeyState, Observe, ObserveReply, ObserveSeqno, ObserveSeqnoReply,
};
use kedge_types::Datatype;

use super::{Command, Done};
use crate::session::{Failure, Rights};

pub(super) fn keys(command: &mut Command<'_, '_, '_>) -> Result<Done, Failure> {
    let wire = Observe::decode(command.request)?;
    let bucket = command.session.bucket(Rights::READ)?;
    let mut value = Vec::new();
    for asked in wire.keys() {
        let key = command.session.key(asked.key)?;
        let (state, cas) = bucket.observe_key(command.turn.ctx(), asked.vb, &key)?;
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
        .encode(&mut value);
    }
    command.composer.value(Datatype::RAW, &value, command.out);
    Ok(Done::Replied)
}

pub(super) fn seqno(command: &mut Command<'_, '_, '_>) -> Result<Done, Failure> {
    let wire = ObserveSeqno::decode(command.request)?;
    let bucket = command.session.bucket(Rights::READ)?;
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
    Ok(Done::Replied)
}
