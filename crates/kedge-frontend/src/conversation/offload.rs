//! Offloading of commands that would keep a front-end thread too long: a task executes them with the session.
//!
//! Invariants:
//! * A session is in one place: with its connection, or with the task. While it is away the connection reads and sends
//!   nothing, and messages to it wait; so the task executes exactly what the front-end thread would have.
//! * No part of a command was executed before it goes to a task: the lengths of its request and of its document alone
//!   decide.

use std::sync::Arc;

use kedge_bucket::{Bucket, Completion, any_long_value};
use kedge_node::output::Output;
use kedge_protocol::binary::{ConnectionKind, Opcode, Request};
use kedge_protocol::text::TextCommand;
use kedge_types::limits::LONG_VALUE_BYTES;
use kedge_types::{CollectionId, Datatype, DocKey, KeyBuffer, VbId};

use crate::commands::{LongRun, row};
use crate::cookie::ConnectionId;
use crate::server_context::ServerContext;
use crate::session::{Flow, Halt, ReplyKind, Session, SessionTurn};

/// Length of a request with many keys from which it is long, in bytes.
const MANY_KEYS_BYTES: usize = 32 << 10;

/// The work of a task with a session.
pub(crate) enum OffloadedWork {
    /// Executes a request, which consists of these bytes.
    Request(Vec<u8>),
    /// Ends the parked command of this slot.
    Completion(u8, Completion),
    /// Continues the answer that has begun.
    Answer,
}

/// A session on its way to a task, with the work and the output of its connection.
pub(crate) struct OffloadedSession {
    pub(crate) session: Session,
    pub(crate) out: Output,
    pub(crate) work: OffloadedWork,
    /// The start of the command, nanoseconds of the monotonic clock.
    pub(crate) start_ns: u64,
}

/// The outcome of the work.
pub(crate) enum OffloadOutcome {
    /// The bytes of a request, empty if all were executed; the number of executed bytes, and the reason to stop.
    Request(Vec<u8>, usize, Halt),
    /// The parked command ended, with the action for the connection.
    Completion(Flow),
}

/// A session on its way back.
pub(crate) struct OffloadResult {
    pub(crate) id: ConnectionId,
    pub(crate) session: Session,
    pub(crate) out: Output,
    pub(crate) outcome: OffloadOutcome,
    /// Buckets in which a command was parked.
    pub(crate) flush_requests: Vec<Arc<Bucket>>,
}

impl OffloadedSession {
    /// Runs the work.
    pub(crate) fn run(self, shared: &ServerContext) -> OffloadResult {
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
            may_offload: false,
            flush_requests: &mut flush_requests,
        };
        let outcome = match work {
            OffloadedWork::Request(bytes) => {
                let (consumed, halt) = session.on_bytes(&mut turn, &bytes, &mut out);
                // Freed here, as to free much memory takes time, too.
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
            OffloadedWork::Answer => {
                session.continue_answer(&mut turn, &mut out);
                OffloadOutcome::Completion(Flow::Next)
            }
        };
        OffloadResult {
            id: session.id(),
            session,
            out,
            outcome,
            flush_requests,
        }
    }
}

impl Session {
    /// Returns true if a request takes long: its value or that of its document is large and is read or inflated, or it
    /// names many documents.
    #[inline]
    pub(crate) fn is_long(&self, request: &Request<'_>) -> bool {
        let opcode = Opcode::from_wire(request.opcode, self.kind());
        let long = opcode.map_or(LongRun::Never, |opcode| row(opcode).long);
        if long == LongRun::Always {
            return true;
        }
        if request.value.len() > MANY_KEYS_BYTES && is_long_request(request, long) {
            return true;
        }
        any_long_value() && self.is_about_long_value(request, long)
    }

    fn is_about_long_value(&self, request: &Request<'_>, long: LongRun) -> bool {
        let is_about_value = matches!(long, LongRun::Sends | LongRun::Reads | LongRun::Replaces);
        let Some(bucket) = self.bucket.as_ref().filter(|_| is_about_value) else {
            return false;
        };
        let mut buffer = KeyBuffer::EMPTY;
        let Ok(key) = self.protocol.document_key(request.key, &mut buffer) else {
            return false;
        };
        let vb = match self.kind() {
            ConnectionKind::Couchbase => request.vb,
            ConnectionKind::Memcached => key.vbucket(bucket.vbuckets()),
        };
        self.is_long_in(bucket, vb, key, long)
    }

    fn is_long_in(&self, bucket: &Bucket, vb: VbId, key: &DocKey, long: LongRun) -> bool {
        bucket
            .documents()
            .peek(vb, key)
            .is_some_and(|item| match long {
                LongRun::Sends => self.protocol.copies_long(&item),
                LongRun::Reads => item.is_long(),
                LongRun::Replaces => item.has_xattrs() && item.is_long(),
                LongRun::Never | LongRun::Always | LongRun::ManyKeys => false,
            })
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
                    Some(_) => LongRun::Reads,
                    None => LongRun::Sends,
                };
                keys.any(|key| is_long(key, uses))
            }
            TextCommand::MetaGet(command) => meta_is_long(&command.key, LongRun::Reads, is_long),
            TextCommand::Store(command) => is_long(command.key, LongRun::Reads),
            TextCommand::Delete(command) => is_long(command.key, LongRun::Replaces),
            TextCommand::Touch(command) => is_long(command.key, LongRun::Reads),
            TextCommand::MetaSet(command) => meta_is_long(&command.key, LongRun::Reads, is_long),
            TextCommand::Arithmetic(command) => is_long(command.key, LongRun::Reads),
            TextCommand::MetaDelete(command) => meta_is_long(&command.key, LongRun::Reads, is_long),
            TextCommand::MetaArithmetic(command) => {
                meta_is_long(&command.key, LongRun::Reads, is_long)
            }
            _ => false,
        }
    }

    /// Returns true if a retrieval of the text protocol takes long for this document.
    pub(crate) fn is_long_retrieval(&self, key: &[u8], with_touch: bool) -> bool {
        let Some(bucket) = self.bucket.as_deref().filter(|_| any_long_value()) else {
            return false;
        };
        let uses = match with_touch {
            true => LongRun::Reads,
            false => LongRun::Sends,
        };
        let key = DocKey::new(CollectionId::DEFAULT, key);
        key.is_ok_and(|key| self.is_long_in(bucket, key.vbucket(bucket.vbuckets()), &key, uses))
    }

    /// Returns true if the reply of a parked command takes long to compose, as its document is large.
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
        if !item.is_long() || self.dcp.is_dcp() {
            return false;
        }
        let sends_long = self.protocol.copies_long(item);
        self.in_flight
            .get_mut(slot)
            .is_some_and(|request| match request.kind {
                ReplyKind::Document | ReplyKind::Locked => sends_long,
                ReplyKind::Lookup(_)
                | ReplyKind::Counter
                | ReplyKind::Text(_)
                | ReplyKind::TextDocument => true,
                _ => false,
            })
    }

    /// The stand-in for the session while it is offloaded.
    pub(crate) fn stand_in(&self, shared: &ServerContext) -> Self {
        Self::new(
            self.id(),
            self.protocol.port(),
            self.local,
            self.peer,
            shared,
        )
        .with_listing_of(self)
    }
}

fn is_long_request(request: &Request<'_>, long: LongRun) -> bool {
    request.value.len() >= LONG_VALUE_BYTES
        || long == LongRun::ManyKeys
        || request.datatype & Datatype::SNAPPY.bits() != 0
            && inflated_len(request.value) >= LONG_VALUE_BYTES
}

fn meta_is_long(
    key: &kedge_protocol::text::meta::MetaKey<'_>,
    uses: LongRun,
    is_long: impl Fn(&[u8], LongRun) -> bool,
) -> bool {
    crate::text_exec::with_meta_key(key, |key| is_long(key, uses))
}

/// The uncompressed length that a compressed value claims, in bytes.
fn inflated_len(value: &[u8]) -> usize {
    snap::raw::decompress_len(value).unwrap_or(0)
}
