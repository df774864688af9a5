//! Replication: connections to the nodes with the active vBuckets that this node follows.
//!
//! One thread, `kedge-repl`, has all these connections, one for each peer and bucket. It receives changes, passes them
//! to the bucket, and acknowledges prepares: those that only need memory at once, others when the writer of the log
//! reports them, which wakes the thread once for a batch. If it has nothing else to do, it writes the log itself.
//!
//! The plan assigns the followed nodes; others make it ([`Replicator::set_plan`]). A lost connection, and a vBucket
//! whose stream ends, is retried until the plan changes.
//!
//! Invariants:
//! * A vBucket has at most one stream: a stream that moves to another peer is closed before the new one is requested.
//! * Bytes are acknowledged to the peer's flow control after their changes were accepted.
//! * The thread never blocks: name resolution and logins have a thread of their own.

mod backoff;
mod copy_limit;
mod dial;
mod files;
mod input;
mod link;
mod link_stream;
mod plan;
mod status;
mod streams;
mod thread;

pub use plan::{NodeIdentity, ReplicationSource};

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use kedge_bucket::{ReplicaSink, RollbackReport, VbState};
use kedge_cluster::TakenVbucket;
use kedge_node::coordination::{LinkStatus, ReplicationLinks};
use kedge_node::inbox::Inbox;
use kedge_node::registry::BucketRegistry;
use kedge_sync::{RankedMutex, ranks::ReplicationThread};
use kedge_tls::ClientStream;
use kedge_types::{Seqno, Status, SystemClock, VbId};
use mio::{Poll, Waker};

use dial::DialError;
use files::FileCopyError;
use status::ReplicationStatus;
use thread::{LinkThread, WAKER};

/// A message to the thread.
pub(crate) enum LinkMessage {
    /// The name and credentials of this node.
    Identity(NodeIdentity),
    /// The sources of the vBuckets of a bucket.
    Plan {
        bucket: String,
        sources: Vec<ReplicationSource>,
    },
    /// An attempt to connect ended.
    Dialed {
        link: u64,
        attempt: u64,
        result: Box<Result<ClientStream, DialError>>,
    },
    /// A rollback ended, successfully or not.
    RolledBack {
        link: u64,
        vb: VbId,
        result: Result<RollbackReport, Status>,
    },
    /// A state change of the current takeover ended; all changes received before are on disk.
    StateSet {
        link: u64,
        vb: VbId,
        asked: u64,
        state: VbState,
        result: Result<(), Status>,
    },
    /// A copy of a file ended: the high seqno of the installed file, or the reason why DCP is used.
    FileCopied {
        link: u64,
        vb: VbId,
        asked: u64,
        result: Result<Seqno, FileCopyError>,
    },
    /// The listener for vBuckets that were taken over.
    Heir(Heir),
    /// Prepares of a bucket to acknowledge.
    Acknowledge {
        bucket: u64,
        vb: VbId,
        prepared: Seqno,
    },
    /// A bucket has memory for changes that it did not accept.
    Room { bucket: u64 },
    /// Stops the thread.
    Stop,
}

/// Called when a vBucket of a bucket was taken over: the peer has given it up, and this node has all its data on disk.
/// It is called again if that has no effect.
pub(crate) type Heir = Arc<dyn Fn(TakenVbucket) + Send + Sync>;

/// Makes vBuckets follow those of other nodes.
pub struct Replicator {
    inbox: Arc<Inbox<LinkMessage>>,
    status_board: Arc<ReplicationStatus>,
    thread: RankedMutex<ReplicationThread, Thread>,
}

/// The thread, which runs only if something is replicated.
enum Thread {
    NotNeeded(Box<LinkThread>),
    Runs(JoinHandle<()>),
    Ended,
}

impl std::fmt::Debug for Replicator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replicator").finish_non_exhaustive()
    }
}

impl Replicator {
    /// Creates the replicator. Nothing is replicated before there is an identity and a plan; the thread starts with the
    /// first of them.
    ///
    /// # Errors
    /// The error of the thread's poll.
    pub fn new(registry: &Arc<BucketRegistry>, clock: &Arc<SystemClock>) -> io::Result<Self> {
        let poll = Poll::new()?;
        let inbox = Arc::new(Inbox::new(Waker::new(poll.registry(), WAKER)?));
        let status_board = Arc::new(ReplicationStatus::default());
        let work = LinkThread::new(
            poll,
            inbox.clone(),
            registry.clone(),
            clock.clone(),
            status_board.clone(),
        );
        Ok(Self {
            inbox,
            status_board,
            thread: RankedMutex::new(Thread::NotNeeded(Box::new(work))),
        })
    }

    fn tell(&self, told: LinkMessage) {
        self.inbox.send([told]);
        let mut thread = self.thread.lock();
        *thread = match std::mem::replace(&mut *thread, Thread::Ended) {
            Thread::NotNeeded(work) => {
                let run = move || kedge_node::abort_on_panic(|| work.run());
                let named = std::thread::Builder::new().name("kedge-repl".to_owned());
                match named.spawn(run) {
                    Ok(runs) => Thread::Runs(runs),
                    // A node that cannot follow would acknowledge data that nobody has.
                    Err(error) => panic!("the thread kedge-repl does not start: {error}"),
                }
            }
            other => other,
        };
    }

    /// Sets the identity of this node for its peers. Existing connections end.
    pub fn set_identity(&self, identity: NodeIdentity) {
        self.tell(LinkMessage::Identity(identity));
    }

    /// Sets the listener for vBuckets that were taken over.
    pub(crate) fn set_heir(&self, heir: Heir) {
        self.tell(LinkMessage::Heir(heir));
    }

    /// Sets the sources of the vBuckets of a bucket, and replaces earlier ones: vBuckets that are not in the plan are
    /// not followed. Returns at once; [`ReplicationLinks::links`] shows the result.
    pub fn set_plan(&self, bucket: &str, sources: Vec<ReplicationSource>) {
        let bucket = bucket.to_owned();
        self.tell(LinkMessage::Plan { bucket, sources });
    }

    /// Waits until there is no connection to a peer. Returns false on a timeout.
    pub(crate) fn wait_gone(&self, peer: &str, patience: Duration) -> bool {
        self.status_board.wait_gone(peer, patience)
    }

    /// Ends all connections, and the thread.
    pub fn stop(&self) {
        self.inbox.send([LinkMessage::Stop]);
        let thread = std::mem::replace(&mut *self.thread.lock(), Thread::Ended);
        if let Thread::Runs(thread) = thread {
            // A panic ends the process, so there is none to report.
            let _ = thread.join();
        }
    }
}

impl ReplicationLinks for Replicator {
    fn links(&self) -> Vec<LinkStatus> {
        self.status_board.read()
    }

    fn stats(&self, each: &mut dyn FnMut(&str, &str)) {
        self.status_board.stats(each);
    }
}

/// The notifications of a bucket to the thread.
struct BucketNotifier {
    bucket: u64,
    inbox: Arc<Inbox<LinkMessage>>,
}

impl ReplicaSink for BucketNotifier {
    fn acknowledge(&self, acks: &mut Vec<(VbId, Seqno)>) {
        let bucket = self.bucket;
        let told = acks
            .drain(..)
            .map(|(vb, prepared)| LinkMessage::Acknowledge {
                bucket,
                vb,
                prepared,
            });
        self.inbox.send(told);
    }

    fn memory_available(&self) {
        let bucket = self.bucket;
        self.inbox.send([LinkMessage::Room { bucket }]);
    }
}
