//! Operations that are parked, with their own copy of the client's request.

use kedge_bucket_core::{Ctx, Read, RequiredRole};
use kedge_types::{Cas, DocKey, Durability, Now, Status, VbId};
use kedge_vbucket::{Completion, Cookie, DocOp, StepOutcome, StepWrite, VBucket};

/// The condition that a parked operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// Its document is read from the vBucket's file.
    Disk,
    /// So many bytes of memory are free.
    Memory(usize),
    /// Its vBucket, which is pending, has another state.
    VbucketState,
}

/// The admission of a write to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It goes on at once.
    Now,
    /// It has to wait until there are so many bytes.
    Later(usize),
}

/// An operation of a command.
#[derive(Debug)]
pub enum Op {
    /// An operation on a document, which goes on when its document is in memory.
    Document(DocOp<'static>),
    /// Statistics of a key, compared to its document in the file.
    ValidateKey,
    /// Keys from the command's own key on.
    Keys {
        /// Largest number of keys.
        count: u32,
    },
    /// Any document of the collection of the command's key.
    Random {
        /// A random number.
        random: u64,
    },
}

/// An operation that is parked, with the arguments that all commands share.
#[derive(Debug)]
pub struct PendingOp {
    /// The vBucket.
    pub vb: VbId,
    /// The document.
    pub key: DocKey,
    /// The cookie of its completion.
    pub cookie: Cookie,
    /// The CAS that the document must have; 0 for any.
    pub cas: Cas,
    /// The level of a SyncWrite.
    pub durability: Option<Durability>,
    /// The CAS that the document gets; 0 for the next of the vBucket's clock.
    pub new_cas: Cas,
    /// True if the expiry of the document stays.
    pub preserve_ttl: bool,
    /// The operation.
    pub op: Op,
    /// The time at which it was parked first.
    pub since_ns: u64,
    /// Bytes of memory that it waits for, if it does.
    pub memory_bytes: usize,
    /// The number of reads after which the step needed another one.
    pub attempts: u32,
}

impl From<DocOp<'_>> for Op {
    fn from(op: DocOp<'_>) -> Self {
        Self::Document(op.into_owned())
    }
}

impl Op {
    /// Returns the bytes of the value that it brought.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Document(op) => op.bytes(),
            _ => 0,
        }
    }

    /// Returns the role that its vBucket has to play.
    pub fn role(&self) -> RequiredRole {
        match self {
            Self::Document(op) => role_of(op),
            Self::ValidateKey => RequiredRole::Any,
            _ => RequiredRole::Active,
        }
    }

    /// Returns whether it is answered from the file, not from a document that is brought into memory for it.
    pub fn asks_the_file(&self) -> bool {
        !matches!(self, Self::Document(_))
    }

    /// Returns whether it needs no value.
    pub fn is_of_metadata(&self) -> bool {
        match self {
            Self::Document(op) => op.is_of_metadata(),
            _ => true,
        }
    }

    /// Returns the completion of an operation that failed.
    pub fn failed(&self, status: Status) -> Completion {
        match self {
            Self::Document(op) => op.failed(status),
            Self::ValidateKey => DocOp::KeyFigures.failed(status),
            Self::Random { .. } => DocOp::Get.failed(status),
            Self::Keys { .. } => Completion::Keys {
                result: Err(status),
            },
        }
    }
}

impl PendingOp {
    /// Returns whether it waits for the disk when it is parked as a SyncWrite.
    pub fn needs_disk(&self) -> bool {
        self.durability
            .is_some_and(|durability| durability.level.needs_persistence())
    }

    /// Returns the operation of a read.
    pub fn read(ctx: Ctx, wanted: &Read<'_>, op: impl Into<Op>) -> Self {
        Self {
            vb: wanted.vb,
            key: *wanted.key,
            cookie: wanted.cookie,
            cas: Cas(0),
            durability: None,
            new_cas: Cas(0),
            preserve_ttl: false,
            op: op.into(),
            since_ns: ctx.now.mono_ns,
            memory_bytes: 0,
            attempts: 0,
        }
    }

    fn write(&self) -> StepWrite<'_> {
        StepWrite {
            key: &self.key,
            cas: self.cas,
            durability: self.durability,
            new_cas: self.new_cas,
            preserve_ttl: self.preserve_ttl,
            cookie: self.cookie,
            prebuilt: None,
        }
    }

    /// Runs the step again.
    pub(super) fn run(&self, vbucket: &mut VBucket, now: Now) -> StepOutcome<Completion> {
        match &self.op {
            Op::Document(op) => vbucket.at(now).resume(&self.write(), op),
            // These are answered from the file, see `fetch::keys`.
            Op::ValidateKey | Op::Keys { .. } | Op::Random { .. } => StepOutcome::Fetch,
        }
    }
}

/// Returns the role that a vBucket must have for a command.
#[must_use]
pub fn role_of(op: &DocOp<'_>) -> RequiredRole {
    match op {
        DocOp::GetReplica | DocOp::GetReplicaWithTombstones => RequiredRole::Replica,
        DocOp::Observe | DocOp::KeyFigures => RequiredRole::Any,
        _ => RequiredRole::Active,
    }
}
