//! Sockets: one thread that accepts, and a task for each connection.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kedge_tls::ServerTls;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::request_context::{PeerConnection, ShownCertificate};
use super::router::App;
use super::slots::ConnectionSlot;
use super::state::{
    HEADER_BYTES_MAX, HEADER_TIMEOUT, HttpState, PEOPLE_MAX, STOP_TIMEOUT, UNAUTHENTICATED_TIMEOUT,
};
use super::tls::handshake;
use super::{threads, tls};

/// The number of threads for blocking work; they end when they are idle for a while.
const BLOCKING_THREADS_MAX: usize = PEOPLE_MAX + 4;
/// Time after which an idle blocking thread ends.
const BLOCKING_THREAD_IDLE: Duration = Duration::from_secs(5);
/// Pause of accepting when the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The time after which the server probes a silent peer, which otherwise would hold a stream.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// The pause before an overdue connection is checked again while its password is verified.
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// A running management server. Dropping it stops it too.
#[derive(Debug)]
pub struct HttpHandle {
    state: Arc<HttpState>,
    thread: Option<JoinHandle<()>>,
}

impl HttpHandle {
    /// Stops accepting, ends streams, gives requests in flight at most [`STOP_TIMEOUT`], and waits for the end of the
    /// thread.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.state.stopping.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic in the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for HttpHandle {
    fn drop(&mut self) {
        self.end();
    }
}

/// The listening sockets of management, at least one.
#[derive(Debug, Default)]
pub struct HttpListeners {
    /// HTTP.
    pub plain: Option<TcpListener>,
    /// HTTPS.
    pub tls: Option<(TcpListener, ServerTls)>,
}

/// Serves on the listeners, on a thread of its own.
///
/// # Errors
/// When the system refuses a thread, or a listener is not usable.
pub fn start(listeners: HttpListeners, state: HttpState) -> io::Result<HttpHandle> {
    start_with(listeners, state, ConnectionTimeouts::default())
}

/// Timeouts of connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionTimeouts {
    /// The timeout of a header.
    pub(super) header: Duration,
    /// The time within which a connection must have a right password.
    pub(super) unauthenticated: Duration,
}

impl Default for ConnectionTimeouts {
    fn default() -> Self {
        Self {
            header: HEADER_TIMEOUT,
            unauthenticated: UNAUTHENTICATED_TIMEOUT,
        }
    }
}

/// Serves as [`start`] does, with other timeouts.
pub(super) fn start_with(
    listeners: HttpListeners,
    state: HttpState,
    times: ConnectionTimeouts,
) -> io::Result<HttpHandle> {
    let state = Arc::new(state);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_keep_alive(BLOCKING_THREAD_IDLE)
        .thread_name("kedge-http-io")
        .build()?;
    let listeners = {
        let _inside = runtime.enter();
        OpenListeners::new(listeners)?
    };
    let served = state.clone();
    let thread = std::thread::Builder::new()
        .name("kedge-http".to_owned())
        .spawn(move || {
            runtime.block_on(accept(listeners, served, times));
            // A call that still blocks on the disk is not awaited.
            runtime.shutdown_background();
        })?;
    Ok(HttpHandle {
        state,
        thread: Some(thread),
    })
}

/// The listening sockets, ready to accept.
struct OpenListeners {
    plain: Option<tokio::net::TcpListener>,
    tls: Option<(tokio::net::TcpListener, ServerTls)>,
}

impl OpenListeners {
    fn new(listeners: HttpListeners) -> io::Result<Self> {
        let open = |listener: TcpListener| {
            listener.set_nonblocking(true)?;
            tokio::net::TcpListener::from_std(listener)
        };
        let tls = listeners
            .tls
            .map(|(listener, tls)| Ok::<_, io::Error>((open(listener)?, tls)));
        Ok(Self {
            plain: listeners.plain.map(open).transpose()?,
            tls: tls.transpose()?,
        })
    }

    /// Accepts a connection of either socket, with the TLS of its socket.
    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr, Option<ServerTls>)> {
        let plain = async {
            match &self.plain {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        let tls = async {
            match &self.tls {
                Some((listener, tls)) => (listener.accept().await, tls.clone()),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = plain => accepted.map(|(stream, peer)| (stream, peer, None)),
            (accepted, tls) = tls => accepted.map(|(stream, peer)| (stream, peer, Some(tls))),
        }
    }
}

async fn accept(listeners: OpenListeners, state: Arc<HttpState>, times: ConnectionTimeouts) {
    let app = App::new(state.clone());
    tokio::spawn(threads::follow(state.clone()));
    // Any port may be the one with TLS.
    if let Some(tls) = &state.parts.tls {
        let users = state.parts.users.clone();
        tokio::spawn(tls::follow_files(tls.clone(), users));
    }
    let mut protocol = http1::Builder::new();
    protocol
        .timer(TokioTimer::new())
        .header_read_timeout(times.header)
        .max_header_size(HEADER_BYTES_MAX);
    let mut connections = JoinSet::new();
    let mut stopped = std::pin::pin!(state.stopped());
    loop {
        let accepted = tokio::select! {
            accepted = listeners.accept() => accepted,
            // Finished tasks are removed, so that they do not accumulate.
            Some(_) = connections.join_next() => continue,
            () = &mut stopped => break,
        };
        match accepted {
            Ok((stream, peer, tls)) => {
                let slot = Arc::new(state.slots.admit(peer.ip()));
                let served = serve((stream, tls), &protocol, &app, &state, slot.clone());
                connections.spawn(async move {
                    tokio::select! {
                        () = served => {}
                        () = slot.evicted() => {
                            tracing::debug!(%peer, "management: a connection without a login makes room for another");
                        }
                        () = overdue(&slot, times.unauthenticated) => {
                            tracing::debug!(%peer, "management: closing a connection that did not log in");
                        }
                    }
                });
            }
            Err(error) => {
                tracing::warn!("management: cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listeners);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(STOP_TIMEOUT, all_ended).await;
}

/// Waits until a connection has had no right password for too long, and none is being verified.
async fn overdue(slot: &ConnectionSlot, unauthenticated: Duration) {
    tokio::time::sleep(unauthenticated).await;
    while !slot.is_idle_stranger() {
        if !slot.is_strangers() {
            return std::future::pending().await;
        }
        tokio::time::sleep(BUSY_PAUSE).await;
    }
}

fn serve(
    (stream, tls): (TcpStream, Option<ServerTls>),
    protocol: &http1::Builder,
    app: &App,
    state: &Arc<HttpState>,
    slot: Arc<ConnectionSlot>,
) -> impl Future<Output = ()> + Send + use<> {
    let (protocol, app, state) = (protocol.clone(), app.clone(), state.clone());
    async move {
        let (Ok(local), Ok(peer)) = (stream.local_addr(), stream.peer_addr()) else {
            return;
        };
        let mut arrival = PeerConnection {
            local,
            slot,
            certificate: ShownCertificate::default(),
            peer,
            is_tls: tls.is_some(),
        };
        set_options(&stream);
        let Some(tls) = tls else {
            return connection(stream, &protocol, app, &state, arrival).await;
        };
        match handshake(stream, &tls).await {
            Ok((stream, certificate)) => {
                arrival.certificate = certificate;
                connection(stream, &protocol, app, &state, arrival).await;
            }
            Err(why) => tracing::debug!("management: no TLS with a client: {why}"),
        }
    }
}

/// Sets the options of a socket. Without them a connection works as well, only slower or for longer.
fn set_options(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE_IDLE));
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    protocol: &http1::Builder,
    app: App,
    state: &HttpState,
    arrival: PeerConnection,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (app, arrival) = (app.clone(), arrival.clone());
        async move {
            let slot = arrival.slot.clone();
            slot.set_busy(true);
            let response = app.call(request.map(Body::new), arrival).await;
            slot.set_busy(false);
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    let serving = protocol.serve_connection(TokioIo::new(stream), service);
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = state.stopped() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        // Usually the client's doing: it went away, was too slow, or does not speak HTTP.
        tracing::debug!("management: a connection ended: {error}");
    }
}
