//! Messages to front-end threads: new connections, completions, changes of the cluster, the shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kedge_auth::{ExternalGrants, ServerSession, ServerStep};
use kedge_bucket::{Completion, Completions, Cookie, ProcessorWaits};
use kedge_node::inbox::Inbox;
use mio::net::TcpStream;

use crate::cookie::ConnectionId;
use crate::open_handshakes::OpenHandshake;
use crate::processor_waits::{self, ThreadWaits};
use crate::request_memory::MemoryGrant;

/// The port of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Port {
    /// Couchbase clients.
    Kv,
    /// Plain memcached clients, text or binary.
    Memcached,
}

/// A connection that a front-end thread is to serve.
#[derive(Debug)]
pub(crate) struct AcceptedConnection {
    pub(crate) stream: TcpStream,
    pub(crate) port: Port,
    /// The handshake with which it begins, if it has TLS.
    pub(crate) handshake: Option<OpenHandshake>,
    pub(crate) peer: SocketAddr,
    /// The address that the client connected to, which the cluster map names for this node.
    pub(crate) local: SocketAddr,
}

/// A login whose password was checked on another thread.
pub(crate) struct LoginResult {
    pub(crate) session: ServerSession,
    pub(crate) step: ServerStep,
    /// The rights that an authority has shown of an external user.
    pub(crate) grants: Option<Arc<ExternalGrants>>,
}

/// The reason why a connection, and no other, is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvictionReason {
    /// Its client has not logged in. It stays if the client has done so meanwhile.
    NoLogin,
    /// Its TLS handshake is not complete. It stays if it has become so meanwhile.
    Handshake,
    /// It is the least recently used one of an address with many on the memcached port.
    LeastRecentlyUsed,
}

/// A message to a front-end thread.
pub(crate) enum FrontEndMessage {
    /// Serve this connection.
    Connection(Box<AcceptedConnection>),
    /// A parked command ended.
    Completed(Cookie, Completion),
    /// A parked login ended. `None`: the password was not checked, as too many wait.
    LoggedIn(Cookie, Option<Box<LoginResult>>),
    /// A task has put a session into the thread's queue of returned sessions.
    SessionReturned,
    /// Request memory was granted to a connection that waits for it.
    MemoryGranted(ConnectionId, MemoryGrant),
    /// Streams of this connection have new items.
    StreamsReady(ConnectionId),
    /// This connection is to end.
    End(ConnectionId),
    /// This connection is to end, to make room for another.
    Evict(ConnectionId, EvictionReason),
    /// There is a new revision of the cluster map.
    ClusterChanged,
    /// Other threads have freed memory of this one.
    ReturnMemory,
    /// Take no more requests, finish, end.
    Stop,
    /// End now.
    Abort,
}

/// The inboxes of all front-end threads.
pub(crate) struct FrontEnds {
    inboxes: Box<[FrontEndInbox]>,
}

struct FrontEndInbox {
    inbox: Inbox<FrontEndMessage>,
    /// True if the thread reads documents for its commands itself.
    reads: AtomicBool,
    /// The waits of the thread for a processor.
    waits: ThreadWaits,
}

impl FrontEnds {
    pub(crate) fn new(inboxes: Vec<Inbox<FrontEndMessage>>) -> Self {
        let of_thread = |inbox| FrontEndInbox {
            inbox,
            reads: AtomicBool::new(false),
            waits: ThreadWaits::default(),
        };
        Self {
            inboxes: inboxes.into_iter().map(of_thread).collect(),
        }
    }

    pub(crate) fn inbox(&self, thread: u16) -> &Inbox<FrontEndMessage> {
        &self.inboxes[usize::from(thread)].inbox
    }

    /// Watches the waits of the calling thread, which has this number, for a processor.
    pub(crate) fn watch_waits(&self, thread: u16) {
        self.inboxes[usize::from(thread)].waits.watch_this_thread();
    }

    /// Sets the flag that a thread reads documents for its commands itself.
    pub(crate) fn set_reads(&self, thread: u16, reads: bool) {
        let inbox = &self.inboxes[usize::from(thread)];
        inbox.reads.store(reads, Ordering::Relaxed);
    }

    pub(crate) fn send(&self, thread: u16, message: FrontEndMessage) {
        self.inbox(thread).send([message]);
    }

    pub(crate) fn send_all(&self, message: impl Fn() -> FrontEndMessage) {
        for of_thread in &self.inboxes {
            of_thread.inbox.send([message()]);
        }
    }
}

impl Completions for FrontEnds {
    fn reads_for_itself(&self, thread: u16) -> bool {
        let inbox = self.inboxes.get(usize::from(thread));
        inbox.is_some_and(|inbox| inbox.reads.load(Ordering::Relaxed))
    }

    fn processor_waits(&self) -> Option<ProcessorWaits> {
        processor_waits::sum(self.inboxes.iter().map(|inbox| &inbox.waits))
    }

    fn return_memory(&self) {
        self.send_all(|| FrontEndMessage::ReturnMemory);
    }

    fn complete(&self, done: &mut Vec<(Cookie, Completion)>) {
        let thread = |cookie: &Cookie| ConnectionId::of(*cookie).0.thread;
        // Stable: the completions of one connection keep their order.
        done.sort_by_key(|(cookie, _)| thread(cookie));
        let mut all = done.drain(..).peekable();
        while let Some((first, _)) = all.peek() {
            let of = thread(first);
            let batch = std::iter::from_fn(|| all.next_if(|(cookie, _)| thread(cookie) == of));
            let messages =
                batch.map(|(cookie, completion)| FrontEndMessage::Completed(cookie, completion));
            if let Some(of_thread) = self.inboxes.get(usize::from(of)) {
                of_thread.inbox.send(messages);
            } else {
                // A cookie without a thread is nobody's, and its completions are dropped.
                messages.for_each(drop);
            }
        }
    }
}
