//! Commands that would keep a front-end thread too long. A task executes them, with the session on loan.
//!
//! Invariants:
//! * A session is in one place: with its connection, or with the task. While it is away the connection reads and sends
//!   nothing, and what it is told waits; so the task executes exactly what the front-end thread would have.
//! * Nothing of a command has been done when it goes to a task: what is long is known from the lengths of its request and
//!   of its document alone.

use std::sync::Arc;

use kedge_bucket::{Bucket, Completion, Item, any_long_value};
use kedge_node::output::Output;
use kedge_protocol::binary::{Opcode, Request};
use kedge_protocol::text::TextCommand;
use kedge_types::limits::LONG_VALUE_BYTES;
use kedge_types::{CollectionId, Datatype, DocKey, VbId};

use super::compose::copies_long;
use super::{Flow, Halt, ReplyKind, Session, SessionTurn};
use crate::cookie::ConnectionId;
use crate::shared::Shared;

/// Keys that OBSERVE may name before it is long, in bytes of its request.
const OBSERVED_BYTES_MAX: usize = 32 << 10;

/// What a task does with a session.
pub(crate) enum OffloadedWork {
    /// Executes a request, which is all of these bytes.
    Request(Vec<u8>),
    /// Ends the parked command of this slot.
    Completion(u8, Completion),
}

/// A session on its way to a task, with what is to be done and the output of its connection.
pub(crate) struct OffloadedSession {
    pub(crate) session: Session,
    pub(crate) out: Output,
    pub(crate) work: OffloadedWork,
    /// When the command began, nanoseconds of the monotonic clock.
    pub(crate) start_ns: u64,
}

/// What became of the work.
pub(crate) enum OffloadOutcome {
    /// The bytes of a request, none when it was executed; how many were executed, and why it went no further.
    Request(Vec<u8>, usize, Halt),
    /// The parked command ended; whether the connection does, too.
    Completion(Flow),
}

/// A session on its way back.
pub(crate) struct Returned {
    pub(crate) id: ConnectionId,
    pub(crate) session: Session,
    pub(crate) out: Output,
    pub(crate) worked: OffloadOutcome,
    /// Buckets in which a command was parked.
    pub(crate) flush_requests: Vec<Arc<Bucket>>,
}

impl OffloadedSession {
    /// Does the work.
    pub(crate) fn run(self, shared: &Shared) -> Returned {
        let Self {
            mut session,
            mut out,
            work,
            start_ns,
        } = self;
        let mut flush_requests = Vec::new();
        let mut turn = SessionTurn {
            shared,
            thread: shared.metrics.tasks(),
            now: shared.now(),
            last_ns: start_ns,
            until_ns: u64::MAX,
            longest: None,
            lends: false,
            flush_requests: &mut flush_requests,
        };
        let worked = match work {
            OffloadedWork::Request(bytes) => {
                let (consumed, halt) = session.on_bytes(&mut turn, &bytes, &mut out);
                // To free much memory takes time, too.
                let left = if consumed == bytes.len() {
                    Vec::new()
                } else {
                    bytes
                };
                OffloadOutcome::Request(left, consumed, halt)
            }
            OffloadedWork::Completion(slot, completion) => OffloadOutcome::Completion(
                session.on_completion(&mut turn, slot, completion, &mut out),
            ),
        };
        Returned {
            id: session.id(),
            session,
            out,
            worked,
            flush_requests,
        }
    }
}

/// What a command does with the value of its document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Sends its body.
    Sends,
    /// Looks into it, or copies it.
    Reads,
    /// Takes its place, or removes it. Extended attributes in front of it may stay.
    Replaces,
}

const fn use_of(opcode: Opcode) -> Option<Use> {
    Some(match opcode {
        Opcode::Get | Opcode::Getq | Opcode::Getk | Opcode::Getkq | Opcode::GetReplica => {
            Use::Sends
        }
        Opcode::Set
        | Opcode::Setq
        | Opcode::Add
        | Opcode::Addq
        | Opcode::Replace
        | Opcode::Replaceq
        | Opcode::ReturnMeta
        | Opcode::Delete
        | Opcode::Deleteq => Use::Replaces,
        // Another expiry or a lock makes a copy of the document.
        Opcode::Touch
        | Opcode::Gat
        | Opcode::Gatq
        | Opcode::Gatk
        | Opcode::Gatkq
        | Opcode::GetLocked
        | Opcode::UnlockKey
        | Opcode::Append
        | Opcode::Appendq
        | Opcode::Prepend
        | Opcode::Prependq
        | Opcode::Increment
        | Opcode::Incrementq
        | Opcode::Decrement
        | Opcode::Decrementq
        | Opcode::SubdocGet
        | Opcode::SubdocExists
        | Opcode::SubdocGetCount
        | Opcode::SubdocMultiLookup
        | Opcode::SubdocDictAdd
        | Opcode::SubdocDictUpsert
        | Opcode::SubdocDelete
        | Opcode::SubdocReplace
        | Opcode::SubdocArrayPushLast
        | Opcode::SubdocArrayPushFirst
        | Opcode::SubdocArrayInsert
        | Opcode::SubdocArrayAddUnique
        | Opcode::SubdocCounter
        | Opcode::SubdocMultiMutation => Use::Reads,
        _ => return None,
    })
}

/// Returns whether a command goes through all that a vBucket has, or frees it.
const fn looks_at_all(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::GetKeys | Opcode::GetRandomKey | Opcode::SetVbucket | Opcode::DelVbucket
    )
}

impl Session {
    /// Returns whether a request takes long: its value, or that of its document, is to be looked through or inflated and is
    /// large, or it names many documents.
    #[inline]
    pub(super) fn is_long(&self, request: &Request<'_>) -> bool {
        let opcode = Opcode::from_wire(request.opcode, self.kind());
        if opcode.is_some_and(looks_at_all) {
            return true;
        }
        if request.value.len() > OBSERVED_BYTES_MAX && self.is_long_request(request) {
            return true;
        }
        any_long_value() && self.is_about_long_value(request)
    }

    fn is_long_request(&self, request: &Request<'_>) -> bool {
        request.value.len() >= LONG_VALUE_BYTES
            || Opcode::from_wire(request.opcode, self.kind()) == Some(Opcode::Observe)
            || request.datatype & Datatype::SNAPPY.bits() != 0
                && inflated_len(request.value) >= LONG_VALUE_BYTES
    }

    fn is_about_long_value(&self, request: &Request<'_>) -> bool {
        let opcode = Opcode::from_wire(request.opcode, self.kind());
        let uses = opcode.and_then(use_of);
        let (Some(uses), Some(bucket)) = (uses, &self.bucket) else {
            return false;
        };
        let Ok(key) = self.key(request.key) else {
            return false;
        };
        let vb = match self.kind() {
            kedge_protocol::binary::ConnectionKind::Couchbase => request.vb,
            _ => key.vbucket(bucket.vbuckets()),
        };
        self.is_long_in(bucket, vb, &key, uses)
    }

    fn is_long_in(&self, bucket: &Bucket, vb: VbId, key: &DocKey, uses: Use) -> bool {
        bucket.peek(vb, key).is_some_and(|item| match uses {
            Use::Sends => self.sends_long(&item),
            Use::Reads => item.is_long(),
            Use::Replaces => item.has_xattrs() && item.is_long(),
        })
    }

    /// Returns whether sending a document means to make a long copy of its value.
    fn sends_long(&self, item: &Item) -> bool {
        copies_long(self.features, item)
    }

    /// As [`Self::is_long`], of a command of the text protocol and its bytes.
    pub(crate) fn is_long_text(&self, command: &TextCommand<'_>, bytes: &[u8]) -> bool {
        if bytes.len() >= LONG_VALUE_BYTES {
            return true;
        }
        let Some(bucket) = self.bucket.as_deref().filter(|_| any_long_value()) else {
            return false;
        };
        let is_long = |key: &[u8], uses| {
            let key = DocKey::new(CollectionId::DEFAULT, key);
            key.is_ok_and(|key| self.is_long_in(bucket, key.vbucket(bucket.vbuckets()), &key, uses))
        };
        match command {
            TextCommand::Retrieve(command) => {
                let mut keys = command.keys;
                let uses = match command.touch {
                    Some(_) => Use::Reads,
                    None => Use::Sends,
                };
                keys.any(|key| is_long(key, uses))
            }
            TextCommand::MetaGet(command) => meta_is_long(&command.key, Use::Reads, is_long),
            TextCommand::Store(command) => is_long(command.key, Use::Reads),
            TextCommand::Delete(command) => is_long(command.key, Use::Replaces),
            TextCommand::Touch(command) => is_long(command.key, Use::Reads),
            TextCommand::MetaSet(command) => meta_is_long(&command.key, Use::Reads, is_long),
            TextCommand::Arithmetic(command) => is_long(command.key, Use::Reads),
            TextCommand::MetaDelete(command) => meta_is_long(&command.key, Use::Reads, is_long),
            TextCommand::MetaArithmetic(command) => meta_is_long(&command.key, Use::Reads, is_long),
            _ => false,
        }
    }

    /// Returns whether the end of a parked command takes long, as its document is large.
    pub(crate) fn ends_long(&mut self, slot: u8, completion: &Completion) -> bool {
        let (Completion::Read {
            result: Ok((item, _)),
        }
        | Completion::SyncWrite {
            item: Some(item), ..
        }) = completion
        else {
            return false;
        };
        if !item.is_long() || self.is_dcp() {
            return false;
        }
        let sends_long = self.sends_long(item);
        self.in_flight
            .get_mut(slot)
            .is_some_and(|flight| match flight.kind {
                ReplyKind::Document | ReplyKind::Locked => sends_long,
                ReplyKind::Lookup(_)
                | ReplyKind::Counter
                | ReplyKind::Text(_)
                | ReplyKind::Part => true,
                _ => false,
            })
    }

    /// What stands in its place while it is on loan.
    pub(crate) fn stand_in(&self, shared: &Shared) -> Self {
        Self::new(self.id, self.port(), self.local, self.peer, shared)
    }
}

fn meta_is_long(
    key: &kedge_protocol::text::meta::MetaKey<'_>,
    uses: Use,
    is_long: impl Fn(&[u8], Use) -> bool,
) -> bool {
    crate::text_exec::with_meta_key(key, |key| is_long(key, uses))
}

/// How long a compressed value claims to be without compression, in bytes.
fn inflated_len(value: &[u8]) -> usize {
    snap::raw::decompress_len(value).unwrap_or(0)
}
