//! The commands of the binary protocol, a family per file: parse (`kedge_protocol`), execute (`kedge_bucket`), compose.

mod arithmetic;
mod collections;
mod concat;
mod config;
mod flush;
mod get;
mod hello;
mod keys;
mod lock;
mod meta;
mod misc;
mod observe;
mod remove;
mod sasl;
mod seqno;
mod stat;
mod store;
mod task_stats;
mod timer;
mod touch;
mod vbucket;

use kedge_bucket::{Bucket, Completion, Item, Mutated, Outcome, Timing, Write};
use kedge_protocol::binary::commands::encode_counter;
use kedge_protocol::binary::{ConnectionKind, Feature, FrameInfos, Opcode, Request};
use kedge_types::{Cas, CollectionId, DocKey, KeyError, Status, VbId};
use std::sync::Arc;

pub(crate) use config::push_map;
pub(crate) use misc::plain_version;
pub(crate) use sasl::logged_in;
pub(crate) use stat::group_stats;

use crate::output::Output;
use crate::session::{Composer, Failure, Flight, ReplyKind, Rights, Session, Turn, inflated};

/// A command being executed.
pub(crate) struct Command<'c, 't, 'r> {
    pub(crate) session: &'c mut Session,
    pub(crate) turn: &'c mut Turn<'t>,
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
    /// The selected bucket, if the user may do this with it.
    ///
    /// # Errors
    /// `NoBucket`, `AccessDenied`.
    #[inline]
    pub(crate) fn bucket(&self, needed: Rights) -> Result<&Arc<Bucket>, Failure> {
        let Some(bucket) = &self.bucket else {
            return Err(Failure::new(
                Status::NoBucket,
                "no bucket is selected, or it was dropped",
            ));
        };
        if !self.rights.allow(needed) {
            return Err(Failure::new(
                Status::AccessDenied,
                "the user's roles do not allow this",
            ));
        }
        Ok(bucket)
    }

    /// A key as this client sends it.
    ///
    /// # Errors
    /// `Invalid` when it is none, `UnknownCollection` when it is in any but the default collection.
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
        let key = DocKey::from_prefixed(wire).map_err(invalid)?;
        if key.collection() != CollectionId::DEFAULT {
            return Err(Status::UnknownCollection.into());
        }
        Ok(key)
    }

    /// The document that a request is about.
    ///
    /// # Errors
    /// As [`Self::bucket`] and [`Self::key`].
    #[inline]
    pub(crate) fn target(
        &self,
        request: &Request<'_>,
        key: &[u8],
        needed: Rights,
    ) -> Result<Target<'_>, Failure> {
        let bucket = self.bucket(needed)?;
        let key = self.key(key)?;
        // Plain memcached clients know of no vBuckets.
        let vb = match self.kind() {
            ConnectionKind::Couchbase => request.vb,
            ConnectionKind::Memcached => key.vbucket(bucket.vbuckets()),
        };
        Ok(Target { bucket, vb, key })
    }
}

impl Target<'_> {
    /// What all writes share.
    #[inline]
    pub(crate) fn write(&self, session: &Session, infos: &FrameInfos<'_>, cas: Cas) -> Write<'_> {
        Write {
            vb: self.vb,
            key: &self.key,
            cas,
            durability: infos.durability,
            preserve_ttl: infos.preserve_ttl,
            cookie: session.id().cookie(session.flights.next_slot()),
        }
    }
}

impl Command<'_, '_, '_> {
    /// What is checked of every command before it is decoded.
    ///
    /// # Errors
    /// `AccessDenied` before the login, or for acting as another user; `Invalid` for a datatype that was not
    /// negotiated.
    #[inline]
    pub(crate) fn check_first(&self) -> Result<(), Failure> {
        if !self.session.is_authenticated() && !is_allowed_before_login(self.opcode) {
            return Err(Failure::new(Status::AccessDenied, "log in first"));
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

    /// The end of a mutation.
    #[inline]
    pub(crate) fn mutated(&mut self, outcome: Outcome<Mutated>) -> Done {
        match outcome {
            Outcome::Done(mutated) => {
                self.composer.mutation(&mutated, &[], self.out);
                Done::Replied
            }
            Outcome::Parked => self.park(ReplyKind::Mutation),
        }
    }

    /// The command was given away under the cookie of the next slot.
    pub(crate) fn park(&mut self, kind: ReplyKind) -> Done {
        let alone = self.infos.barrier || !self.opcode.is_reorderable();
        let flight = Flight {
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

/// Executes a command.
///
/// # Errors
/// What the client is told instead of success.
pub(crate) fn dispatch(command: &mut Command<'_, '_, '_>) -> Result<Done, Failure> {
    match command.opcode {
        Opcode::Get | Opcode::Getq | Opcode::Getk | Opcode::Getkq => get::get(command),
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
        Opcode::GetRandomKey => keys::random(command),
        Opcode::GetKeys => keys::list(command),
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
        other => Err(Opcode::unsupported_status(other.wire()).into()),
    }
}

/// Composes the reply of a parked command that a bucket ended.
///
/// # Errors
/// What the client is told instead of success.
pub(crate) fn complete(
    composer: &Composer,
    kind: &ReplyKind,
    completion: Completion,
    out: &mut Output,
) -> Result<(), Failure> {
    let (mutated, item) = match completion {
        Completion::Persisted(result) => {
            result?;
            composer.success(out);
            return Ok(());
        }
        Completion::SyncWrite { result, item } => (result?, item),
    };
    // A SyncWrite that was committed comes with its document, unless it was a deletion.
    let document = || item.as_ref().ok_or(Failure::from(Status::Internal));
    match kind {
        ReplyKind::Mutation => composer.mutation(&mutated, &[], out),
        ReplyKind::Touched => composer.cas(mutated.cas, out),
        ReplyKind::Counter => {
            composer.mutation(&mutated, &encode_counter(number(document()?)?), out);
        }
        ReplyKind::Document { with_key } => {
            let item = document()?;
            let key = if *with_key { logical_key(item) } else { &[] };
            composer.document(item, mutated.cas, key, out)?;
        }
        ReplyKind::StatusOnly | ReplyKind::Login | ReplyKind::Text(_) => composer.success(out),
    }
    Ok(())
}

/// The key of an item in the default collection: what stands behind its one-byte prefix.
fn logical_key(item: &Item) -> &[u8] {
    &item.key()[1..]
}

/// The number that a counter's document holds.
fn number(item: &Item) -> Result<u64, Failure> {
    let text = inflated(item)?;
    let number = std::str::from_utf8(&text)
        .ok()
        .and_then(|text| text.parse().ok());
    number.ok_or(Failure::from(Status::Internal))
}

/// The histogram that a command's time is counted in.
pub(crate) const fn timing_of(opcode: Opcode) -> Option<Timing> {
    Some(match opcode {
        Opcode::Get | Opcode::Getq | Opcode::Getk | Opcode::Getkq | Opcode::GetRandomKey => {
            Timing::Get
        }
        Opcode::Set
        | Opcode::Setq
        | Opcode::Add
        | Opcode::Addq
        | Opcode::Replace
        | Opcode::Replaceq
        | Opcode::Append
        | Opcode::Appendq
        | Opcode::Prepend
        | Opcode::Prependq => Timing::Set,
        Opcode::Delete | Opcode::Deleteq => Timing::Delete,
        Opcode::Increment | Opcode::Incrementq | Opcode::Decrement | Opcode::Decrementq => {
            Timing::Arithmetic
        }
        Opcode::Touch | Opcode::Gat | Opcode::Gatq | Opcode::Gatk | Opcode::Gatkq => Timing::Touch,
        Opcode::GetLocked | Opcode::UnlockKey => Timing::Lock,
        Opcode::GetMeta | Opcode::GetqMeta => Timing::GetMeta,
        Opcode::Stat => Timing::Stat,
        _ => return None,
    })
}
