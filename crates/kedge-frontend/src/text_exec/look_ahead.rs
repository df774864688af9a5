//! The next commands of a connection, and requests for the memory of their documents. See [`NextDocuments`].
//!
//! Commands that were received together are parsed together, as their keys are needed before the first one is executed. Parsing
//! has no effects, so commands that are not executed in the same call are parsed again in a later one.

#[cfg(test)]
mod tests;

use kedge_protocol::text::meta::MetaKey;
use kedge_protocol::text::{Parsed, TextCommand, TextLimits, parse};
use kedge_types::{CollectionId, DocKey, KeyBuffer};

use crate::next_documents::{COMMANDS_AHEAD, NextDocuments};
use crate::session::Session;

/// The next commands of a connection.
pub(super) struct NextCommands<'b> {
    first: Parsed<'b>,
    /// Those behind the first one that were parsed with it. It allocates no memory for a command that is alone.
    behind: Vec<Parsed<'b>>,
    /// The number of those behind that were returned.
    returned: usize,
}

impl<'b> NextCommands<'b> {
    pub(super) fn new() -> Self {
        Self {
            first: Parsed::Incomplete { need: 1 },
            behind: Vec::new(),
            returned: 0,
        }
    }

    /// Parses the command at the front of `bytes`. `bytes` begin where the last command has ended.
    pub(super) fn parse(
        &mut self,
        session: &mut Session,
        bytes: &'b [u8],
        limits: &TextLimits,
    ) -> &Parsed<'b> {
        let was_requested = session.text.ahead > 0;
        session.text.ahead = session.text.ahead.saturating_sub(1);
        if self.returned < self.behind.len() {
            self.returned += 1;
            return &self.behind[self.returned - 1];
        }
        self.first = parse(bytes, limits);
        self.behind.clear();
        self.returned = 0;
        if let Parsed::Command { consumed, .. } = self.first
            && consumed < bytes.len()
            && !was_requested
        {
            self.look_ahead(session, bytes, limits);
        }
        &self.first
    }

    /// Parses the commands behind the first one, and requests the documents of all.
    fn look_ahead(&mut self, session: &mut Session, bytes: &'b [u8], limits: &TextLimits) {
        let Some(bucket) = &session.bucket else {
            return;
        };
        let mut documents = NextDocuments::new(bucket);
        let mut at = 0;
        while let Parsed::Command { command, consumed } = self.behind.last().unwrap_or(&self.first)
        {
            if let Some(key) = first_key(command) {
                documents.add_key(key);
            }
            at += consumed;
            if at == bytes.len() || self.behind.len() == COMMANDS_AHEAD - 1 {
                break;
            }
            if self.behind.capacity() == 0 {
                self.behind.reserve_exact(COMMANDS_AHEAD - 1);
            }
            self.behind.push(parse(&bytes[at..], limits));
        }
        documents.request(document_key);
        session.text.ahead = self.behind.len();
    }
}

/// Requests the documents of the next keys of a retrieval, at most [`COMMANDS_AHEAD`]. Returns their number.
pub(super) fn request_documents<'k>(
    session: &'k Session,
    keys: impl Iterator<Item = &'k [u8]>,
) -> usize {
    let Some(bucket) = &session.bucket else {
        return 0;
    };
    let mut documents = NextDocuments::new(bucket);
    for key in keys.take(COMMANDS_AHEAD) {
        documents.add_key(key);
    }
    documents.request(document_key)
}

fn document_key<'b>(key: &[u8], buffer: &'b mut KeyBuffer) -> Option<&'b DocKey> {
    buffer.put(CollectionId::DEFAULT, key).ok()
}

/// Returns the key of a command. A retrieval requests the documents of its other keys itself. A key in base64 is not decoded for
/// this.
fn first_key<'b>(command: &TextCommand<'b>) -> Option<&'b [u8]> {
    let written = |key: &MetaKey<'b>| (!key.is_base64()).then(|| key.written());
    match command {
        TextCommand::Retrieve(command) => { command.keys }.next(),
        TextCommand::Store(command) => Some(command.key),
        TextCommand::Delete(command) => Some(command.key),
        TextCommand::Arithmetic(command) => Some(command.key),
        TextCommand::Touch(command) => Some(command.key),
        TextCommand::MetaGet(command) => written(&command.key),
        TextCommand::MetaSet(command) => written(&command.key),
        TextCommand::MetaDelete(command) => written(&command.key),
        TextCommand::MetaArithmetic(command) => written(&command.key),
        TextCommand::MetaDebug(command) => written(&command.key),
        TextCommand::FlushAll(_)
        | TextCommand::Stats(_)
        | TextCommand::Version
        | TextCommand::Verbosity(_)
        | TextCommand::Quit
        | TextCommand::MetaNoop => None,
    }
}
