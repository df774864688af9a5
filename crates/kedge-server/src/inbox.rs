//! How front-end threads are reached by others: new connections, completions, changes of the cluster, the order to
//! stop.
//!
//! A thread that is awake looks into its inbox before it sleeps, so only a sleeping one is woken, once per batch. The
//! order of steps on both sides makes sure that none sleeps on a full inbox: the thread says that it sleeps and then
//! looks; the sender fills and then asks whether the thread sleeps.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

use kedge_auth::{ServerSession, Step};
use kedge_bucket::{Completion, Completions, Cookie};
use mio::Waker;
use mio::net::TcpStream;
use parking_lot::Mutex;

use crate::cookie::ConnectionId;
use crate::request_memory::Room;
use crate::session::Returned;

/// Which port a connection came in on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    /// Couchbase clients.
    Kv,
    /// Plain memcached clients, text or binary.
    Memcached,
}

/// A connection that a front-end thread is to serve.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) stream: TcpStream,
    pub(crate) port: Port,
    pub(crate) peer: SocketAddr,
    /// The address that the client reached: what the cluster map names for it.
    pub(crate) local: IpAddr,
}

/// A login that was worked out on another thread.
pub(crate) struct Login {
    pub(crate) session: ServerSession,
    pub(crate) step: Step,
}

/// What a front-end thread is told.
pub(crate) enum Message {
    /// Serve this connection.
    Connection(Box<Accepted>),
    /// A parked command ended.
    Completed(Cookie, Completion),
    /// A login that was parked ended; `None`: it was not worked out, as too many wait.
    LoggedIn(Cookie, Option<Box<Login>>),
    /// A task has done what a session was lent to it for.
    Returned(Box<Returned>),
    /// A connection that waited to receive a request has room for it.
    Room(ConnectionId, Room),
    /// Streams of this connection have something new.
    StreamsReady(ConnectionId),
    /// This connection is to end.
    End(ConnectionId),
    /// This connection is to end, unless it has logged in meanwhile.
    Evict(ConnectionId),
    /// There is a new revision of the cluster map.
    ClusterChanged,
    /// Take no more requests, finish, end.
    Stop,
    /// End now.
    Abort,
}

/// What one thread was told and has not read.
pub(crate) struct Inbox<M = Message> {
    messages: Mutex<Vec<M>>,
    /// Whether the thread reads documents for its commands itself.
    reads: AtomicBool,
    sleeping: AtomicBool,
    waker: Waker,
}

impl<M> Inbox<M> {
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            messages: Mutex::new(Vec::new()),
            reads: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            waker,
        }
    }

    /// Says whether the thread reads documents for its commands itself.
    pub(crate) fn set_reads(&self, reads: bool) {
        self.reads.store(reads, Ordering::Relaxed);
    }

    /// Leaves messages and wakes the thread if it sleeps.
    pub(crate) fn send(&self, messages: impl IntoIterator<Item = M>) {
        self.messages.lock().extend(messages);
        if self.sleeping.swap(false, Ordering::SeqCst) {
            // Fails only when the thread is gone, which needs no message any more.
            let _ = self.waker.wake();
        }
    }

    /// Says that the thread is about to sleep. False when there is something to read, and it must not.
    pub(crate) fn may_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        if self.messages.lock().is_empty() {
            return true;
        }
        self.sleeping.store(false, Ordering::SeqCst);
        false
    }

    /// Says that the thread is awake.
    pub(crate) fn awake(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }

    /// Takes all messages; `read` is emptied and swapped in, so that no memory is allocated for each batch.
    pub(crate) fn take(&self, read: &mut Vec<M>) {
        read.clear();
        std::mem::swap(&mut *self.messages.lock(), read);
    }
}

/// The inboxes of all front-end threads.
pub(crate) struct FrontEnds {
    inboxes: Box<[Inbox]>,
}

impl FrontEnds {
    pub(crate) fn new(inboxes: Vec<Inbox>) -> Self {
        Self {
            inboxes: inboxes.into(),
        }
    }

    pub(crate) fn inbox(&self, thread: u16) -> &Inbox {
        &self.inboxes[usize::from(thread)]
    }

    pub(crate) fn send(&self, thread: u16, message: Message) {
        self.inbox(thread).send([message]);
    }

    pub(crate) fn send_all(&self, message: impl Fn() -> Message) {
        for inbox in &self.inboxes {
            inbox.send([message()]);
        }
    }
}

impl Completions for FrontEnds {
    fn reads_for_itself(&self, thread: u16) -> bool {
        let inbox = self.inboxes.get(usize::from(thread));
        inbox.is_some_and(|inbox| inbox.reads.load(Ordering::Relaxed))
    }

    fn complete(&self, done: &mut Vec<(Cookie, Completion)>) {
        let thread = |cookie: &Cookie| ConnectionId::of(*cookie).0.thread;
        // Stable: the completions of one connection keep their order.
        done.sort_by_key(|(cookie, _)| thread(cookie));
        let mut all = done.drain(..).peekable();
        while let Some((first, _)) = all.peek() {
            let of = thread(first);
            let batch = std::iter::from_fn(|| all.next_if(|(cookie, _)| thread(cookie) == of));
            let messages = batch.map(|(cookie, completion)| Message::Completed(cookie, completion));
            if let Some(inbox) = self.inboxes.get(usize::from(of)) {
                inbox.send(messages);
            } else {
                // Consumed all the same: a cookie of no thread is nobody's.
                messages.for_each(drop);
            }
        }
    }
}
