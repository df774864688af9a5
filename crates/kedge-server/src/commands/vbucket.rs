//! GET_VBUCKET.

use kedge_protocol::binary::commands::HeaderOnly;
use kedge_types::Datatype;

use super::{Command, Done};
use crate::session::{Failure, Rights};

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
