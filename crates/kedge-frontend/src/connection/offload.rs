//! The session of a connection while a task executes one of its commands.

use crate::conversation::OffloadedSession;
use crate::inbox::FrontEndMessage;

/// The offloaded session of a connection, if there is one.
#[derive(Default)]
pub(crate) struct Offload {
    /// True while a task has the session, and a stand-in takes its place.
    is_away: bool,
    /// The session, until it is given to a task.
    outgoing: Option<OffloadedSession>,
    /// Messages for the session that came while it was away.
    deferred: Vec<FrontEndMessage>,
}

impl Offload {
    pub(crate) fn is_away(&self) -> bool {
        self.is_away
    }

    pub(super) fn begin(&mut self, session: OffloadedSession) {
        self.is_away = true;
        self.outgoing = Some(session);
    }

    pub(super) fn end(&mut self) {
        self.is_away = false;
    }

    /// Takes the session that a task is to be given.
    pub(crate) fn take_outgoing(&mut self) -> Option<OffloadedSession> {
        self.outgoing.take()
    }

    /// Keeps a message for the session until it is back.
    pub(crate) fn defer(&mut self, message: FrontEndMessage) {
        self.deferred.push(message);
    }

    /// Takes the messages that came while the session was away.
    pub(crate) fn take_deferred(&mut self) -> Vec<FrontEndMessage> {
        std::mem::take(&mut self.deferred)
    }
}
