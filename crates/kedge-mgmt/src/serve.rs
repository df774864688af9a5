//! Sockets: one thread that accepts, and a task for each connection.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::request_context::PeerConnection;
use super::router::App;
use super::slots::ConnectionSlot;
use super::state::{
    HEADER_BYTES_MAX, HEADER_TIMEOUT, HttpState, PEOPLE_MAX, STOP_TIMEOUT, UNAUTHENTICATED_TIMEOUT,
};
use super::threads;

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

/// Serves on `listener`, on a thread of its own.
///
/// # Errors
/// When the system refuses a thread, or the listener is not usable.
pub fn start(listener: TcpListener, state: HttpState) -> io::Result<HttpHandle> {
    start_with(listener, state, ConnectionTimeouts::default())
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
    listener: TcpListener,
    state: HttpState,
    times: ConnectionTimeouts,
) -> io::Result<HttpHandle> {
    listener.set_nonblocking(true)?;
    let state = Arc::new(state);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_keep_alive(BLOCKING_THREAD_IDLE)
        .thread_name("kedge-http-io")
        .build()?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    let served = state.clone();
    let thread = std::thread::Builder::new()
        .name("kedge-http".to_owned())
        .spawn(move || {
            runtime.block_on(accept(listener, served, times));
            // A call that still blocks on the disk is not awaited.
            runtime.shutdown_background();
        })?;
    Ok(HttpHandle {
        state,
        thread: Some(thread),
    })
}

async fn accept(
    listener: tokio::net::TcpListener,
    state: Arc<HttpState>,
    times: ConnectionTimeouts,
) {
    let app = App::new(state.clone());
    tokio::spawn(threads::follow(state.clone()));
    let mut protocol = http1::Builder::new();
    protocol
        .timer(TokioTimer::new())
        .header_read_timeout(times.header)
        .max_header_size(HEADER_BYTES_MAX);
    let mut connections = JoinSet::new();
    let mut stopped = std::pin::pin!(state.stopped());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // Finished tasks are removed, so that they do not accumulate.
            Some(_) = connections.join_next() => continue,
            () = &mut stopped => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let slot = Arc::new(state.slots.admit(peer.ip()));
                let served = serve(stream, &protocol, &app, &state, slot.clone());
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
    drop(listener);
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
    stream: TcpStream,
    protocol: &http1::Builder,
    app: &App,
    state: &Arc<HttpState>,
    slot: Arc<ConnectionSlot>,
) -> impl Future<Output = ()> + Send + use<> {
    connection(stream, protocol.clone(), app.clone(), state.clone(), slot)
}

async fn connection(
    stream: TcpStream,
    protocol: http1::Builder,
    app: App,
    state: Arc<HttpState>,
    slot: Arc<ConnectionSlot>,
) {
    let Ok(local) = stream.local_addr() else {
        return;
    };
    let arrival = PeerConnection { local, slot };
    let socket = SockRef::from(&stream);
    // Without these options a connection works as well, only slower or for longer.
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE_IDLE));
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
