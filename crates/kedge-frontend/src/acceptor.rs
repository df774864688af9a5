//! The thread that accepts connections and distributes them over the front-end threads, in turn.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kedge_types::SystemClock;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use socket2::{SockRef, TcpKeepalive};

use crate::cookie::ConnectionId;
use crate::inbox::{AcceptedConnection, EvictionReason, FrontEndMessage, FrontEnds, Port};
use crate::limits::FrontendLimits;
use crate::memcached_connections::{EvictionLimits, MemcachedConnections};
use crate::metrics::Metrics;
use crate::open_handshakes::{OpenHandshake, OpenHandshakes};
use crate::server_context::ServerContext;
use crate::unauthenticated::UnauthenticatedConnections;

const WAKER: Token = Token(usize::MAX);
/// Pause of accepting when the system has no file descriptor or memory for a connection. To try again at once would
/// only take time that closing one needs.
const BACK_OFF: Duration = Duration::from_millis(100);

/// A socket that clients connect to.
pub(crate) struct ListeningSocket {
    pub(crate) socket: TcpListener,
    pub(crate) port: Port,
    /// True if its connections begin with a TLS handshake.
    pub(crate) is_tls: bool,
}

/// The running thread.
pub(crate) struct Acceptor {
    waker: Arc<Waker>,
    is_open: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

struct AcceptorThread {
    poll: Poll,
    listeners: Vec<ListeningSocket>,
    front_ends: Arc<FrontEnds>,
    threads: u16,
    next: u16,
    limits: FrontendLimits,
    metrics: Arc<Metrics>,
    unauthenticated: Arc<UnauthenticatedConnections>,
    handshakes: Arc<OpenHandshakes>,
    memcached: Arc<MemcachedConnections>,
    clock: Arc<SystemClock>,
    stop: Arc<AtomicBool>,
    /// True if connections of the memcached port are to be accepted. `was_open` is the state that the thread has
    /// applied.
    is_open: Arc<AtomicBool>,
    was_open: bool,
    /// True if a listener could not accept and is tried again after [`BACK_OFF`].
    backed_off: bool,
}

/// The gate of the memcached port. Until it is open, connections wait in the system's backlog: a plain client takes a
/// temporary failure for an error.
#[derive(Debug)]
pub struct MemcachedGate {
    waker: Arc<Waker>,
    is_open: Arc<AtomicBool>,
}

impl MemcachedGate {
    /// Accepts connections from now on.
    pub fn open(&self) {
        self.is_open.store(true, Ordering::SeqCst);
        // Waking fails only if the thread has ended.
        let _ = self.waker.wake();
    }
}

impl Acceptor {
    /// Starts the thread "kedge-accept".
    ///
    /// # Errors
    /// The system's error about the thread, its poll or a socket.
    pub(crate) fn start(
        mut listeners: Vec<ListeningSocket>,
        shared: &ServerContext,
        threads: u16,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        for (at, listener) in listeners.iter_mut().enumerate() {
            let registry = poll.registry();
            registry.register(&mut listener.socket, Token(at), Interest::READABLE)?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let is_open = Arc::new(AtomicBool::new(false));
        let work = AcceptorThread {
            poll,
            listeners,
            front_ends: shared.front_ends.clone(),
            threads,
            next: 0,
            limits: shared.limits.clone(),
            metrics: shared.metrics.clone(),
            unauthenticated: shared.unauthenticated.clone(),
            handshakes: shared.handshakes.clone(),
            memcached: shared.memcached.connections.clone(),
            clock: shared.clock.clone(),
            stop: stop.clone(),
            is_open: is_open.clone(),
            was_open: false,
            backed_off: false,
        };
        let thread = std::thread::Builder::new()
            .name("kedge-accept".to_owned())
            .spawn(move || work.run())?;
        Ok(Self {
            waker,
            is_open,
            stop,
            thread,
        })
    }

    /// The gate of the memcached port, to be opened when its bucket can be used.
    pub(crate) fn opener(&self) -> MemcachedGate {
        MemcachedGate {
            waker: self.waker.clone(),
            is_open: self.is_open.clone(),
        }
    }

    /// Closes the listening sockets. The system refuses connections from now on.
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        // Waking fails only if the thread has ended.
        let _ = self.waker.wake();
        let _ = self.thread.join();
    }
}

impl AcceptorThread {
    fn run(mut self) {
        let mut events = Events::with_capacity(64);
        while !self.stop.load(Ordering::SeqCst) {
            let timeout = self.backed_off.then_some(BACK_OFF);
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!(%error, "accepting connections has ended");
                return;
            }
            let is_open = self.is_open.load(Ordering::SeqCst);
            let opens = is_open && !std::mem::replace(&mut self.was_open, is_open);
            let all = std::mem::take(&mut self.backed_off) || opens;
            for at in 0..self.listeners.len() {
                if self.listeners[at].port == Port::Memcached && !is_open {
                    continue;
                }
                let ready = events.iter().any(|event| event.token() == Token(at));
                if ready || all {
                    self.accept_all(at);
                }
            }
        }
    }

    /// Accepts all waiting connections, as the poll is edge-triggered.
    fn accept_all(&mut self, at: usize) {
        while !self.stop.load(Ordering::SeqCst) {
            match self.listeners[at].socket.accept() {
                Ok((stream, peer)) => self.deal(stream, peer, at),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The client disconnected while it waited; the next one may be there.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                    ) => {}
                Err(error) => {
                    tracing::warn!(%error, "a connection cannot be accepted now");
                    Metrics::count(&self.metrics.accept_errors);
                    self.backed_off = true;
                    return;
                }
            }
        }
    }

    /// Returns true if one more connection fits, as there is room or another one was evicted. A client of the memcached
    /// port, which need not log in, takes no connection from one that did on the KV port.
    fn has_room(&self, port: Port, peer: IpAddr) -> bool {
        let is_full = |open: &AtomicU64, max: u32| open.load(Ordering::Relaxed) >= u64::from(max);
        let all = is_full(&self.metrics.open, self.limits.connections_max);
        let port_is_full = port == Port::Memcached
            && (is_full(&self.metrics.open_memcached, self.limits.memcached_share())
                || self.metrics.clients() >= u64::from(self.limits.clients_max()));
        if !all && !port_is_full {
            return true;
        }
        let from = port_is_full.then_some(port);
        self.evict_without_login(from) || (port == Port::Memcached && self.evict_memcached(peer))
    }

    /// Evicts the oldest connection without a login, of the address with most of these, on this port or any.
    fn evict_without_login(&self, on: Option<Port>) -> bool {
        let found = self.unauthenticated.take_oldest_of_most(on);
        self.evict(found, &self.metrics.evicted, EvictionReason::NoLogin)
    }

    /// Evicts a connection of the memcached port for one from this address.
    fn evict_memcached(&self, newcomer: IpAddr) -> bool {
        let limits = EvictionLimits {
            idle_ns: self.limits.memcached_evict_after.as_nanos() as u64,
            per_source: self.limits.memcached_share_of_address() as usize,
        };
        let now_ns = self.clock.mono_ns();
        let found = self.memcached.take_for(newcomer, limits, now_ns);
        let reason = EvictionReason::LeastRecentlyUsed;
        self.evict(found, &self.metrics.evicted_memcached, reason)
    }

    fn evict(
        &self,
        found: Option<ConnectionId>,
        count: &AtomicU64,
        reason: EvictionReason,
    ) -> bool {
        let Some(id) = found else {
            return false;
        };
        Metrics::count(count);
        let message = FrontEndMessage::Evict(id, reason);
        self.front_ends.send(id.thread, message);
        true
    }

    /// Admits the handshake of a client, in the place of another one if there are too many.
    fn admit_handshake(&self, peer: IpAddr) -> Option<OpenHandshake> {
        let (admitted, loser) = self.handshakes.admit(peer)?;
        if let Some(id) = loser {
            let message = FrontEndMessage::Evict(id, EvictionReason::Handshake);
            self.front_ends.send(id.thread, message);
        }
        Some(admitted)
    }

    fn deal(&mut self, stream: TcpStream, peer: SocketAddr, at: usize) {
        let ListeningSocket { port, is_tls, .. } = self.listeners[at];
        if !self.has_room(port, peer.ip()) {
            Metrics::count(&self.metrics.rejected);
            return;
        }
        let handshake = match is_tls {
            false => None,
            true => match self.admit_handshake(peer.ip()) {
                // It is counted.
                None => return,
                admitted => admitted,
            },
        };
        let prepared = prepare(&stream, &self.limits).and_then(|()| stream.local_addr());
        let local = match prepared {
            Ok(local) => local,
            // The connection has ended already.
            Err(error) => {
                tracing::debug!(%peer, %error, "a connection was lost before it began");
                return;
            }
        };
        self.metrics.opened(port == Port::Memcached);
        let accepted = AcceptedConnection {
            stream,
            port,
            handshake,
            peer,
            local,
        };
        self.front_ends
            .send(self.next, FrontEndMessage::Connection(Box::new(accepted)));
        self.next = (self.next + 1) % self.threads;
    }
}

/// Sets the options of every connection: TCP_NODELAY, and keepalive, so that a half-open connection ends.
fn prepare(stream: &TcpStream, limits: &FrontendLimits) -> io::Result<()> {
    // A turn sends all its replies together, so to wait for more would only delay them.
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(limits.keepalive_idle)
        .with_interval(limits.keepalive_interval)
        .with_retries(limits.keepalive_probes);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keepalive_ends_half_open_connections() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let stream = TcpStream::from_std(accepted);
        let limits = FrontendLimits {
            keepalive_idle: Duration::from_secs(77),
            keepalive_interval: Duration::from_secs(5),
            keepalive_probes: 4,
            ..FrontendLimits::default()
        };
        prepare(&stream, &limits).unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap() && socket.tcp_nodelay().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), limits.keepalive_idle);
        assert_eq!(
            socket.tcp_keepalive_interval().unwrap(),
            limits.keepalive_interval
        );
        assert_eq!(
            socket.tcp_keepalive_retries().unwrap(),
            limits.keepalive_probes
        );
    }
}
