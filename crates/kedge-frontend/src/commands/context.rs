//! The context of a command for its handler, and the row that describes the command.

use std::borrow::Cow;
use std::sync::Arc;

use kedge_bucket::{Bucket, Completion, Item, Mutated, Outcome, Read, Timing, Write};
use kedge_node::output::Output;
use kedge_protocol::binary::{ConnectionKind, FrameInfos, Opcode, Request};
use kedge_types::limits::INFLATED_BYTES_MAX;
use kedge_types::{Cas, Datatype, DocKey, KeyBuffer, Status, VbId};

use crate::session::{
    CommandFailure, Composer, ParkedRequest, ReplyKind, RequestTag, Rights, Session, SessionTurn,
};

/// The function that executes a command.
pub(crate) type Handler =
    fn(&mut CommandContext<'_, '_, '_>) -> Result<CommandOutcome, CommandFailure>;

/// The description of a command in the front end; see [`super::table`].
#[derive(Debug)]
pub(crate) struct CommandRow {
    pub(crate) handler: Handler,
    /// The privileges that the user needs.
    pub(crate) access: RequiredAccess,
    /// True if it changes properties of the session on which a DCP connection depends.
    pub(crate) changes_session: bool,
    /// The histogram of its execution time.
    pub(crate) timing: Option<Timing>,
    /// The kind of its reply after it was parked, unless its handler chooses another one.
    pub(crate) reply: fn() -> ReplyKind,
    /// The cases in which it would keep a front-end thread too long.
    pub(crate) long: LongRun,
}

/// The privileges that a command needs of its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequiredAccess {
    /// No privilege and no login.
    Anyone,
    /// A login only.
    User,
    /// These in the collection of each of its documents.
    Document(Rights),
    /// These in the whole bucket or in any part of it.
    Somewhere(Rights),
    /// These in the whole bucket.
    Bucket(Rights),
    /// Privileges that depend on its arguments: the handler checks them.
    Argument,
    /// No privilege, as the command is known but not served.
    Unserved,
}

/// The cases in which a command would keep a front-end thread too long, so that a task executes it. Whatever the case, a
/// long or compressed request is offloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LongRun {
    /// No other case.
    Never,
    /// Always: it walks or frees all documents of a vBucket.
    Always,
    /// Many keys in one request.
    ManyKeys,
    /// It sends the body of its document, which needs a long copy.
    Sends,
    /// It reads or copies the value of its document, which is long.
    Reads,
    /// It replaces or removes a long value, whose extended attributes may have to be copied.
    Replaces,
}

/// The context of a command in execution.
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
    /// The key of its document, once the handler has decoded it.
    pub(crate) key: KeyBuffer,
}

/// The outcome of a command that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandOutcome {
    /// The reply was composed, or a quiet command left it out.
    Replied,
    /// The command is in flight.
    Parked,
    /// The connection ends when its replies are sent.
    Close,
}

/// The document of a command.
pub(crate) struct TargetDocument<'s> {
    pub(crate) bucket: &'s Arc<Bucket>,
    pub(crate) vb: VbId,
    pub(crate) key: &'s DocKey,
}

impl Session {
    /// The document of a request, whose key is decoded into `buffer`.
    ///
    /// # Errors
    /// As [`Self::collection`] and [`NegotiatedProtocol::document_key`](crate::session::NegotiatedProtocol::document_key).
    #[inline]
    pub(crate) fn target<'s>(
        &'s self,
        request: &Request<'_>,
        key: &[u8],
        needed: Rights,
        buffer: &'s mut KeyBuffer,
    ) -> Result<TargetDocument<'s>, CommandFailure> {
        self.selected()?;
        let key = self.protocol.document_key(key, buffer)?;
        let bucket = self.collection(key.collection(), needed)?;
        // Plain memcached clients do not send vBuckets.
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
            key: self.key,
            cookie: session.next_cookie(),
        }
    }

    /// The arguments that all writes share.
    #[inline]
    pub(crate) fn write(&self, session: &Session, infos: &FrameInfos<'_>, cas: Cas) -> Write<'_> {
        Write {
            vb: self.vb,
            key: self.key,
            cas,
            durability: infos.durability,
            new_cas: Cas(0),
            preserve_ttl: infos.preserve_ttl,
            cookie: session.next_cookie(),
        }
    }
}

/// See [`CommandContext::completion_callback`].
pub(crate) fn completion_callback(
    session: &Session,
    turn: &SessionTurn<'_>,
) -> impl FnOnce(Result<(), Status>) + Send + use<> {
    let completions = turn.shared.registry.completions().clone();
    let cookie = session.next_cookie();
    move |result| completions.complete(&mut vec![(cookie, Completion::Persisted(result))])
}

impl<'r> CommandContext<'_, '_, 'r> {
    /// Makes the checks that are the same for every command, before it is decoded.
    ///
    /// # Errors
    /// `AccessDenied` before the login, for a missing privilege, or for impersonation; `Invalid` for a datatype that
    /// was not negotiated.
    #[inline]
    pub(crate) fn check_first(&self) -> Result<(), CommandFailure> {
        if !self.session.login.is_authenticated() && self.row.access != RequiredAccess::Anyone {
            // memcached clients know only one status of logins.
            let status = match self.session.kind() {
                ConnectionKind::Couchbase => Status::AccessDenied,
                ConnectionKind::Memcached => Status::AuthError,
            };
            return Err(CommandFailure::new(status, "log in first"));
        }
        let is_stale = self.session.login.has_expired(self.turn.last_ns);
        if is_stale && self.row.access != RequiredAccess::Anyone {
            let why = "the token has expired: log in with another one";
            return Err(CommandFailure::new(Status::AuthStale, why));
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

    /// Refuses a command whose user lacks a privilege that does not depend on arguments. Without a bucket the handler
    /// refuses the command itself.
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

    /// Refuses a value above the limit of plain memcached clients. Documents have their own limit.
    ///
    /// # Errors
    /// `TooBig`.
    #[inline]
    pub(crate) fn check_item_size(&self) -> Result<(), CommandFailure> {
        let max = self.turn.shared.memcached.rules.item_bytes_max;
        let is_memcached = self.session.kind() == ConnectionKind::Memcached;
        if is_memcached && self.request.value.len() > max {
            return Err(Status::TooBig.into());
        }
        Ok(())
    }

    /// The uncompressed value of the request.
    ///
    /// # Errors
    /// `Invalid` if it does not match its datatype, or is too large.
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

    /// Composes the reply of a mutation, unless it was parked.
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

    /// Ends a command that composed its reply with [`Composer::shown`], unless it was parked.
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

    /// Parks the command under the cookie of the next slot. Its opcode determines the kind of reply.
    pub(crate) fn park(&mut self) -> CommandOutcome {
        self.park_as((self.row.reply)())
    }

    /// The callback with which a task completes the command, which is parked next and waits for the status only.
    pub(crate) fn completion_callback(&self) -> impl FnOnce(Result<(), Status>) + Send + use<> {
        completion_callback(self.session, self.turn)
    }

    /// As [`Self::park`], with another kind of reply.
    pub(crate) fn park_as(&mut self, kind: ReplyKind) -> CommandOutcome {
        let alone = self.infos.barrier || !self.opcode.is_reorderable();
        let tag = RequestTag {
            opcode: self.opcode,
            opaque: self.request.opaque,
            start_ns: self.turn.last_ns,
        };
        let request = ParkedRequest { tag, kind };
        self.session.park(self.turn, request, alone);
        CommandOutcome::Parked
    }

    /// Composes success without a body.
    pub(crate) fn success(&mut self) -> CommandOutcome {
        self.composer.success(self.out);
        CommandOutcome::Replied
    }
}
