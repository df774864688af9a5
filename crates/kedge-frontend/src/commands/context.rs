//! The context of a command, which its handler gets, and the row that describes the command.

use std::borrow::Cow;
use std::sync::Arc;

use kedge_bucket::{Bucket, Completion, Item, Mutated, Outcome, Read, Timing, Write};
use kedge_node::output::Output;
use kedge_protocol::binary::{ConnectionKind, FrameInfos, Opcode, Request};
use kedge_types::limits::INFLATED_BYTES_MAX;
use kedge_types::{Cas, Datatype, DocKey, Status, VbId};

use crate::session::{
    CommandFailure, Composer, InFlightRequest, ReplyKind, RequestTag, Rights, Session, SessionTurn,
};

/// The function that executes a command.
pub(crate) type Handler =
    fn(&mut CommandContext<'_, '_, '_>) -> Result<CommandOutcome, CommandFailure>;

/// Everything that the front end knows of a command; see [`super::table`].
#[derive(Debug)]
pub(crate) struct CommandRow {
    pub(crate) handler: Handler,
    /// The privileges that its user needs.
    pub(crate) access: RequiredAccess,
    /// True if it changes properties of the session that a DCP connection was opened with.
    pub(crate) changes_session: bool,
    /// The histogram of its execution time.
    pub(crate) timing: Option<Timing>,
    /// The kind of its reply when it was parked, unless its handler chooses another one.
    pub(crate) reply: fn() -> ReplyKind,
    /// The cases in which it would keep a front-end thread too long.
    pub(crate) long: LongRun,
}

/// The privileges that a command needs of its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequiredAccess {
    /// None, not even a login.
    Anyone,
    /// None but the login.
    User,
    /// These in the collection of each document that it is about.
    Document(Rights),
    /// These in the bucket as a whole, or in any part of it.
    Somewhere(Rights),
    /// These in the whole bucket.
    Bucket(Rights),
    /// They depend on its arguments: the handler checks them.
    Argument,
    /// None: it is known and not served, and answered so.
    Unserved,
}

/// The cases in which a command would keep a front-end thread too long, so that a task executes it. Whatever the case, a
/// long or compressed request is offloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LongRun {
    /// No other case.
    Never,
    /// Always: it goes through everything that a vBucket has, or frees it.
    Always,
    /// Many keys in one request.
    ManyKeys,
    /// It sends the body of its document, which needs a long copy.
    Sends,
    /// It looks into the value of its document, or copies it, and that is long.
    Reads,
    /// It replaces or removes a long value. Extended attributes in front of it may stay.
    Replaces,
}

/// The context of a command that is executed: everything that a handler gets.
pub(crate) struct CommandContext<'c, 't, 'r> {
    pub(crate) session: &'c mut Session,
    pub(crate) turn: &'c mut SessionTurn<'t>,
    pub(crate) out: &'c mut Output,
    pub(crate) request: &'c Request<'r>,
    pub(crate) composer: Composer,
    pub(crate) opcode: Opcode,
    /// The row of the opcode in the table of commands.
    pub(crate) row: &'static CommandRow,
    pub(crate) infos: FrameInfos<'r>,
}

/// The outcome of a command that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandOutcome {
    /// The reply was composed, or left out by a quiet command.
    Replied,
    /// It is in flight.
    Parked,
    /// The connection ends when its replies are sent.
    Close,
}

/// A document that a command is about.
pub(crate) struct TargetDocument<'s> {
    pub(crate) bucket: &'s Arc<Bucket>,
    pub(crate) vb: VbId,
    pub(crate) key: DocKey,
}

impl Session {
    /// The document that a request is about.
    ///
    /// # Errors
    /// As [`Self::collection`] and [`NegotiatedProtocol::document_key`](crate::session::NegotiatedProtocol::document_key).
    #[inline]
    pub(crate) fn target(
        &self,
        request: &Request<'_>,
        key: &[u8],
        needed: Rights,
    ) -> Result<TargetDocument<'_>, CommandFailure> {
        self.selected()?;
        let key = self.protocol.document_key(key)?;
        let bucket = self.collection(key.collection(), needed)?;
        // Plain memcached clients know of no vBuckets.
        let vb = match self.kind() {
            ConnectionKind::Couchbase => request.vb,
            ConnectionKind::Memcached => key.vbucket(bucket.vbuckets()),
        };
        Ok(TargetDocument { bucket, vb, key })
    }
}

impl TargetDocument<'_> {
    /// The arguments that all reads share.
    #[inline]
    pub(crate) fn read(&self, session: &Session) -> Read<'_> {
        Read {
            vb: self.vb,
            key: &self.key,
            cookie: session.next_cookie(),
        }
    }

    /// The arguments that all writes share.
    #[inline]
    pub(crate) fn write(&self, session: &Session, infos: &FrameInfos<'_>, cas: Cas) -> Write<'_> {
        Write {
            vb: self.vb,
            key: &self.key,
            cas,
            durability: infos.durability,
            new_cas: Cas(0),
            preserve_ttl: infos.preserve_ttl,
            cookie: session.next_cookie(),
        }
    }
}

/// See [`CommandContext::tells_end`].
pub(crate) fn tells_end(
    session: &Session,
    turn: &SessionTurn<'_>,
) -> impl FnOnce(Result<(), Status>) + Send + use<> {
    let completions = turn.shared.registry.completions().clone();
    let cookie = session.next_cookie();
    move |result| completions.complete(&mut vec![(cookie, Completion::Persisted(result))])
}

impl<'r> CommandContext<'_, '_, 'r> {
    /// Checks what holds for every command before it is decoded.
    ///
    /// # Errors
    /// `AccessDenied` before the login, for what the user may not do, or for acting as another user; `Invalid` for a datatype that was not
    /// negotiated.
    #[inline]
    pub(crate) fn check_first(&self) -> Result<(), CommandFailure> {
        if !self.session.login.is_authenticated() && self.row.access != RequiredAccess::Anyone {
            // memcached clients know but one status of logins.
            let status = match self.session.kind() {
                ConnectionKind::Couchbase => Status::AccessDenied,
                ConnectionKind::Memcached => Status::AuthError,
            };
            return Err(CommandFailure::new(status, "log in first"));
        }
        self.check_access()?;
        if self.session.dcp.is_dcp() && self.row.changes_session {
            return Err(CommandFailure::new(
                Status::Invalid,
                "not on a connection that DCP_OPEN was sent on",
            ));
        }
        if self.request.datatype != 0 {
            let negotiated = self.session.protocol.features.datatypes();
            self.request.datatype(negotiated).map_err(|status| {
                CommandFailure::new(status, "the datatype has bits that were not negotiated")
            })?;
        }
        if self.infos.impersonate.is_some() || self.infos.token_id.is_some() {
            return Err(CommandFailure::new(
                Status::AccessDenied,
                "acting as another user is not allowed",
            ));
        }
        Ok(())
    }

    /// Refuses a command whose user lacks a privilege, as far as that does not depend on its arguments. Without a bucket the
    /// handler refuses it itself.
    ///
    /// # Errors
    /// `AccessDenied`.
    #[inline]
    fn check_access(&self) -> Result<(), CommandFailure> {
        let session = &*self.session;
        let (needed, is_allowed) = match self.row.access {
            RequiredAccess::Bucket(needed) => (needed, session.privileges.allow(needed)),
            RequiredAccess::Somewhere(needed) => {
                (needed, session.privileges.allow_somewhere(needed))
            }
            RequiredAccess::Anyone
            | RequiredAccess::User
            | RequiredAccess::Argument
            | RequiredAccess::Document(_)
            | RequiredAccess::Unserved => {
                return Ok(());
            }
        };
        if is_allowed || session.bucket.is_none() {
            return Ok(());
        }
        Err(session.privileges.rights().denied(needed))
    }

    /// Refuses a value that is larger than what plain memcached clients may send. Documents have their own limit.
    ///
    /// # Errors
    /// `TooBig`.
    #[inline]
    pub(crate) fn check_item_size(&self) -> Result<(), CommandFailure> {
        let max = self.turn.shared.memcached_rules.item_bytes_max;
        let is_memcached = self.session.kind() == ConnectionKind::Memcached;
        if is_memcached && self.request.value.len() > max {
            return Err(Status::TooBig.into());
        }
        Ok(())
    }

    /// The request's value, for commands that look into it. It may be compressed.
    ///
    /// # Errors
    /// `Invalid` when it is not what its datatype says, or too large.
    pub(crate) fn inflated(&self) -> Result<Cow<'r, [u8]>, CommandFailure> {
        let Request {
            datatype, value, ..
        } = *self.request;
        if datatype & Datatype::SNAPPY.bits() == 0 {
            return Ok(Cow::Borrowed(value));
        }
        let invalid =
            CommandFailure::new(Status::Invalid, "the value is not what its datatype says");
        match snap::raw::decompress_len(value) {
            Ok(len) if len <= INFLATED_BYTES_MAX => {}
            _ => return Err(invalid),
        }
        let inflated = snap::raw::Decoder::new().decompress_vec(value);
        inflated.map(Cow::Owned).map_err(|_| invalid)
    }

    /// The end of a mutation.
    #[inline]
    pub(crate) fn mutated(&mut self, outcome: Outcome<Mutated>) -> CommandOutcome {
        match outcome {
            Outcome::Done(mutated) => {
                self.composer.mutation(&mutated, &[], self.out);
                CommandOutcome::Replied
            }
            Outcome::Parked => self.park(),
        }
    }

    /// The end of a command that composed its reply with [`Composer::shown`], unless it was parked.
    #[inline]
    pub(crate) fn composed(
        &mut self,
        outcome: Outcome<Result<Option<(Item, Cas)>, Status>>,
        key: &[u8],
    ) -> Result<CommandOutcome, CommandFailure> {
        match outcome {
            Outcome::Done(shown) => {
                if let Some((item, cas)) = shown? {
                    self.composer.document(&item, cas, key, self.out)?;
                }
                Ok(CommandOutcome::Replied)
            }
            Outcome::Parked => Ok(self.park()),
        }
    }

    /// The command was given away under the cookie of the next slot, and is answered as its opcode is.
    pub(crate) fn park(&mut self) -> CommandOutcome {
        self.park_as((self.row.reply)())
    }

    /// The callback that a task calls at its end, when the command is parked next and waits for the result only.
    pub(crate) fn tells_end(&self) -> impl FnOnce(Result<(), Status>) + Send + use<> {
        tells_end(self.session, self.turn)
    }

    /// [`Self::park`], to be answered in a way that the opcode does not tell alone.
    pub(crate) fn park_as(&mut self, kind: ReplyKind) -> CommandOutcome {
        let alone = self.infos.barrier || !self.opcode.is_reorderable();
        let tag = RequestTag {
            opcode: self.opcode,
            opaque: self.request.opaque,
            start_ns: self.turn.last_ns,
        };
        let request = InFlightRequest { tag, kind };
        self.session.park(self.turn, request, alone);
        CommandOutcome::Parked
    }

    /// Success without anything.
    pub(crate) fn success(&mut self) -> CommandOutcome {
        self.composer.success(self.out);
        CommandOutcome::Replied
    }
}
