//! The commands of the binary protocol, a family per file: parse (`kedge_protocol`), execute (`kedge_bucket`), compose.

mod arithmetic;
mod collection_details;
mod collection_stats;
mod collections;
mod compact;
mod complete;
mod concat;
mod config;
mod dcp;
mod dcp_stats;
mod flush;
mod get;
mod hello;
mod key_stats;
mod keys;
mod lock;
pub(crate) mod memcached_stats;
mod memory_stats;
mod meta;
mod misc;
mod node_stats;
mod observe;
mod range_scan;
mod remove;
mod sasl;
mod seqno;
mod stat;
mod stat_steps;
mod stat_timings;
mod storage_stats;
mod store;
mod subdoc;
mod task_stats;
mod timer;
mod touch;
mod vbucket;
mod with_meta;

use kedge_bucket::{Bucket, Completion, Item, Mutated, Outcome, Read, Timing, Write};
use kedge_node::output::Output;
use kedge_protocol::binary::{ConnectionKind, Feature, FrameInfos, Opcode, Request};
use kedge_types::limits::INFLATED_BYTES_MAX;
use kedge_types::{Cas, CollectionId, Datatype, DocKey, KeyError, Status, VbId};
use std::borrow::Cow;
use std::sync::Arc;

pub(crate) use complete::{complete, counter, document, meta_of, mutation, reply_kind, status_of};
pub(crate) use config::push_map;
pub(crate) use misc::plain_version;
pub(crate) use observe::{Observing, observed};
pub(crate) use range_scan::is_partial;
pub(crate) use sasl::{auth_file_user, log_in_of_auth_file, logged_in, submit_login, take_login};
pub(crate) use stat::Asked;
pub(crate) use stat_steps::{Answer, Form, answer};
pub(crate) use stat_timings::StatTimings;
pub(crate) use subdoc::{Changing, Looking};

use crate::session::{Composer, Failure, InFlightRequest, ReplyKind, Rights, Session, SessionTurn};

/// A command being executed.
pub(crate) struct Command<'c, 't, 'r> {
    pub(crate) session: &'c mut Session,
    pub(crate) turn: &'c mut SessionTurn<'t>,
    pub(crate) out: &'c mut Output,
    pub(crate) request: &'c Request<'r>,
    pub(crate) composer: Composer,
    pub(crate) opcode: Opcode,
    pub(crate) infos: FrameInfos<'r>,
}

/// What became of a command that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// The reply was composed, or left out by a quiet command.
    Replied,
    /// It is in flight.
    Parked,
    /// The connection ends when its replies are sent.
    Close,
}

/// A document that a command is about.
pub(crate) struct Target<'s> {
    pub(crate) bucket: &'s Arc<Bucket>,
    pub(crate) vb: VbId,
    pub(crate) key: DocKey,
}

impl Session {
    /// A key as this client sends it.
    ///
    /// # Errors
    /// `Invalid` when it is none.
    #[inline]
    pub(crate) fn key(&self, wire: &[u8]) -> Result<DocKey, Failure> {
        let invalid = |error| {
            let context = match error {
                KeyError::Empty => "the key is empty",
                KeyError::TooLong => "the key is too long",
                _ => "the collection id in front of the key is malformed",
            };
            Failure::new(Status::Invalid, context)
        };
        if !self.features.contains(Feature::Collections) {
            return DocKey::new(CollectionId::DEFAULT, wire).map_err(invalid);
        }
        DocKey::from_prefixed(wire).map_err(invalid)
    }

    /// The document that a request is about.
    ///
    /// # Errors
    /// As [`Self::collection`] and [`Self::key`].
    #[inline]
    pub(crate) fn target(
        &self,
        request: &Request<'_>,
        key: &[u8],
        needed: Rights,
    ) -> Result<Target<'_>, Failure> {
        self.selected()?;
        let key = self.key(key)?;
        let bucket = self.collection(key.collection(), needed)?;
        // Plain memcached clients know of no vBuckets.
        let vb = match self.kind() {
            ConnectionKind::Couchbase => request.vb,
            ConnectionKind::Memcached => key.vbucket(bucket.vbuckets()),
        };
        Ok(Target { bucket, vb, key })
    }
}

impl Target<'_> {
    /// What all reads share.
    #[inline]
    pub(crate) fn read(&self, session: &Session) -> Read<'_> {
        Read {
            vb: self.vb,
            key: &self.key,
            cookie: session.next_cookie(),
        }
    }

    /// What all writes share.
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

/// See [`Command::tells_end`].
pub(crate) fn tells_end(
    session: &Session,
    turn: &SessionTurn<'_>,
) -> impl FnOnce(Result<(), Status>) + Send + use<> {
    let completions = turn.shared.registry.completions().clone();
    let cookie = session.next_cookie();
    move |result| completions.complete(&mut vec![(cookie, Completion::Persisted(result))])
}

impl<'r> Command<'_, '_, 'r> {
    /// What is checked of every command before it is decoded.
    ///
    /// # Errors
    /// `AccessDenied` before the login, for what the user may not do, or for acting as another user; `Invalid` for a datatype that was not
    /// negotiated.
    #[inline]
    pub(crate) fn check_first(&self) -> Result<(), Failure> {
        if !self.session.is_authenticated() && !is_allowed_before_login(self.opcode) {
            // memcached clients know but one status of logins.
            let status = match self.session.kind() {
                ConnectionKind::Couchbase => Status::AccessDenied,
                ConnectionKind::Memcached => Status::AuthError,
            };
            return Err(Failure::new(status, "log in first"));
        }
        self.session.check_needs(self.opcode)?;
        if self.session.is_dcp() && changes_the_session(self.opcode) {
            return Err(Failure::new(
                Status::Invalid,
                "not on a connection that DCP_OPEN was sent on",
            ));
        }
        if self.request.datatype != 0 {
            let negotiated = self.session.features.datatypes();
            self.request.datatype(negotiated).map_err(|status| {
                Failure::new(status, "the datatype has bits that were not negotiated")
            })?;
        }
        if self.infos.impersonate.is_some() || self.infos.token_id.is_some() {
            return Err(Failure::new(
                Status::AccessDenied,
                "acting as another user is not allowed",
            ));
        }
        Ok(())
    }

    /// Refuses a value that is larger than what plain memcached clients may send. Documents have their own limit.
    ///
    /// # Errors
    /// `TooBig`.
    #[inline]
    pub(crate) fn check_item_size(&self) -> Result<(), Failure> {
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
    pub(crate) fn inflated(&self) -> Result<Cow<'r, [u8]>, Failure> {
        let Request {
            datatype, value, ..
        } = *self.request;
        if datatype & Datatype::SNAPPY.bits() == 0 {
            return Ok(Cow::Borrowed(value));
        }
        let invalid = Failure::new(Status::Invalid, "the value is not what its datatype says");
        match snap::raw::decompress_len(value) {
            Ok(len) if len <= INFLATED_BYTES_MAX => {}
            _ => return Err(invalid),
        }
        let inflated = snap::raw::Decoder::new().decompress_vec(value);
        inflated.map(Cow::Owned).map_err(|_| invalid)
    }

    /// The end of a mutation.
    #[inline]
    pub(crate) fn mutated(&mut self, outcome: Outcome<Mutated>) -> Done {
        match outcome {
            Outcome::Done(mutated) => {
                self.composer.mutation(&mutated, &[], self.out);
                Done::Replied
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
    ) -> Result<Done, Failure> {
        match outcome {
            Outcome::Done(shown) => {
                if let Some((item, cas)) = shown? {
                    self.composer.document(&item, cas, key, self.out)?;
                }
                Ok(Done::Replied)
            }
            Outcome::Parked => Ok(self.park()),
        }
    }

    /// The command was given away under the cookie of the next slot, and is answered as its opcode is.
    pub(crate) fn park(&mut self) -> Done {
        self.park_as(reply_kind(self.opcode))
    }

    /// What a task does at its end, when the command is parked next and waits for no more than how it went.
    pub(crate) fn tells_end(&self) -> impl FnOnce(Result<(), Status>) + Send + use<> {
        tells_end(self.session, self.turn)
    }

    /// [`Self::park`], to be answered in a way that the opcode does not tell alone.
    pub(crate) fn park_as(&mut self, kind: ReplyKind) -> Done {
        let alone = self.infos.barrier || !self.opcode.is_reorderable();
        let flight = InFlightRequest {
            opcode: self.opcode,
            opaque: self.request.opaque,
            kind,
            start_ns: self.turn.last_ns,
        };
        self.session.park(self.turn, flight, alone);
        Done::Parked
    }

    /// Success without anything.
    pub(crate) fn success(&mut self) -> Done {
        self.composer.success(self.out);
        Done::Replied
    }
}

const fn is_allowed_before_login(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Hello
            | Opcode::SaslListMechs
            | Opcode::SaslAuth
            | Opcode::SaslStep
            | Opcode::GetErrorMap
            | Opcode::Noop
            | Opcode::Version
            | Opcode::Quit
            | Opcode::Quitq
    )
}

/// Whether a command changes what a DCP connection was opened with.
const fn changes_the_session(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Hello | Opcode::SelectBucket | Opcode::SaslAuth | Opcode::SaslStep
    )
}

/// Executes a command.
///
/// # Errors
/// What the client is told instead of success.
pub(crate) fn dispatch(command: &mut Command<'_, '_, '_>) -> Result<Done, Failure> {
    match command.opcode {
        Opcode::Get | Opcode::Getq | Opcode::Getk | Opcode::Getkq => get::get(command),
        Opcode::GetReplica => get::replica(command),
        Opcode::GetEx | Opcode::GetExReplica => get::whole(command),
        Opcode::Set
        | Opcode::Setq
        | Opcode::Add
        | Opcode::Addq
        | Opcode::Replace
        | Opcode::Replaceq => store::store(command),
        Opcode::Delete | Opcode::Deleteq => remove::remove(command),
        Opcode::Increment | Opcode::Incrementq | Opcode::Decrement | Opcode::Decrementq => {
            arithmetic::arithmetic(command)
        }
        Opcode::Append | Opcode::Appendq | Opcode::Prepend | Opcode::Prependq => {
            concat::concat(command)
        }
        Opcode::Touch => touch::touch(command),
        Opcode::Gat | Opcode::Gatq | Opcode::Gatk | Opcode::Gatkq => touch::get_and_touch(command),
        Opcode::GetLocked => lock::get_locked(command),
        Opcode::UnlockKey => lock::unlock(command),
        Opcode::GetMeta | Opcode::GetqMeta => meta::get_meta(command),
        Opcode::SetWithMeta
        | Opcode::SetqWithMeta
        | Opcode::AddWithMeta
        | Opcode::AddqWithMeta
        | Opcode::DelWithMeta
        | Opcode::DelqWithMeta => with_meta::write(command),
        Opcode::MutateWithMeta => with_meta::mutate(command),
        Opcode::ReturnMeta => with_meta::returning(command),
        Opcode::RangeScanCreate => range_scan::create(command),
        Opcode::RangeScanContinue => range_scan::go_on(command),
        Opcode::RangeScanCancel => range_scan::cancel(command),
        Opcode::GetRandomKey => keys::random(command),
        Opcode::GetKeys => keys::list(command),
        Opcode::SubdocGet
        | Opcode::SubdocExists
        | Opcode::SubdocGetCount
        | Opcode::SubdocMultiLookup => subdoc::look(command),
        Opcode::SubdocDictAdd
        | Opcode::SubdocDictUpsert
        | Opcode::SubdocDelete
        | Opcode::SubdocReplace
        | Opcode::SubdocArrayPushLast
        | Opcode::SubdocArrayPushFirst
        | Opcode::SubdocArrayInsert
        | Opcode::SubdocArrayAddUnique
        | Opcode::SubdocCounter
        | Opcode::SubdocMultiMutation => subdoc::change(command),
        Opcode::Noop => misc::noop(command),
        Opcode::Version => misc::version(command),
        Opcode::Verbosity => misc::verbosity(command),
        Opcode::Quit | Opcode::Quitq => misc::quit(command),
        Opcode::Stat => stat::stat(command),
        Opcode::Flush | Opcode::Flushq => flush::flush(command),
        Opcode::Observe => observe::keys(command),
        Opcode::ObserveSeqno => observe::seqno(command),
        Opcode::SeqnoPersistence => seqno::persistence(command),
        Opcode::GetAllVbSeqnos => seqno::all_vbuckets(command),
        Opcode::GetFailoverLog => seqno::failover_log(command),
        Opcode::GetVbucket => vbucket::get(command),
        Opcode::SetVbucket => vbucket::set(command),
        Opcode::DelVbucket => vbucket::delete(command),
        Opcode::CompactDb => compact::compact(command),
        Opcode::Hello => hello::hello(command),
        Opcode::SaslListMechs => sasl::list(command),
        Opcode::SaslAuth => sasl::auth(command),
        Opcode::SaslStep => sasl::step(command),
        Opcode::SelectBucket => config::select_bucket(command),
        Opcode::ListBuckets => config::list_buckets(command),
        Opcode::GetErrorMap => config::error_map(command),
        Opcode::GetClusterConfig => config::cluster_config(command),
        Opcode::CollectionsGetManifest => collections::manifest(command),
        Opcode::CollectionsGetId => collections::id(command),
        Opcode::CollectionsGetScopeId => collections::scope_id(command),
        Opcode::GetCmdTimer => timer::get(command),
        Opcode::DcpOpen => dcp::open(command),
        Opcode::DcpControl
        | Opcode::DcpStreamReq
        | Opcode::DcpCloseStream
        | Opcode::DcpGetFailoverLog
        | Opcode::DcpNoop
        | Opcode::DcpBufferAcknowledgement
        | Opcode::DcpSeqnoAcknowledged => Err(Failure::new(
            Status::Invalid,
            "DCP_OPEN comes first on a connection",
        )),
        other => Err(Opcode::unsupported_status(other.wire()).into()),
    }
}

/// The histogram that a command's time is counted in.
pub(crate) const fn timing_of(opcode: Opcode) -> Option<Timing> {
    Some(match opcode {
        Opcode::Get
        | Opcode::Getq
        | Opcode::Getk
        | Opcode::Getkq
        | Opcode::GetReplica
        | Opcode::GetEx
        | Opcode::GetExReplica
        | Opcode::GetRandomKey => Timing::Get,
        Opcode::Set
        | Opcode::Setq
        | Opcode::Add
        | Opcode::Addq
        | Opcode::Replace
        | Opcode::Replaceq
        | Opcode::Append
        | Opcode::Appendq
        | Opcode::Prepend
        | Opcode::Prependq
        | Opcode::ReturnMeta => Timing::Set,
        Opcode::Delete | Opcode::Deleteq => Timing::Delete,
        Opcode::SetWithMeta
        | Opcode::SetqWithMeta
        | Opcode::AddWithMeta
        | Opcode::AddqWithMeta
        | Opcode::MutateWithMeta => Timing::SetWithMeta,
        Opcode::DelWithMeta | Opcode::DelqWithMeta => Timing::DeleteWithMeta,
        Opcode::Increment | Opcode::Incrementq | Opcode::Decrement | Opcode::Decrementq => {
            Timing::Arithmetic
        }
        Opcode::Touch | Opcode::Gat | Opcode::Gatq | Opcode::Gatk | Opcode::Gatkq => Timing::Touch,
        Opcode::GetLocked | Opcode::UnlockKey => Timing::Lock,
        Opcode::GetMeta | Opcode::GetqMeta => Timing::GetMeta,
        Opcode::SubdocGet
        | Opcode::SubdocExists
        | Opcode::SubdocGetCount
        | Opcode::SubdocMultiLookup => Timing::SubdocLookup,
        Opcode::SubdocDictAdd
        | Opcode::SubdocDictUpsert
        | Opcode::SubdocDelete
        | Opcode::SubdocReplace
        | Opcode::SubdocArrayPushLast
        | Opcode::SubdocArrayPushFirst
        | Opcode::SubdocArrayInsert
        | Opcode::SubdocArrayAddUnique
        | Opcode::SubdocCounter
        | Opcode::SubdocMultiMutation => Timing::SubdocMutation,
        Opcode::RangeScanCreate => Timing::RangeScanCreate,
        Opcode::RangeScanContinue => Timing::RangeScanContinue,
        Opcode::Stat => Timing::Stat,
        _ => return None,
    })
}
