//! The memcached text protocol: what its commands do.

use kedge_bucket::Completion;

use crate::output::Output;
use crate::session::{Halt, Session, Turn};

/// How the reply of a parked text command is composed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextReply {
    Stored,
}

pub(crate) fn on_bytes(
    _session: &mut Session,
    _turn: &mut Turn<'_>,
    _bytes: &[u8],
    _out: &mut Output,
) -> (usize, Halt) {
    (0, Halt::Malformed)
}

pub(crate) fn on_completion(_reply: TextReply, _completion: &Completion, _out: &mut Output) {}
