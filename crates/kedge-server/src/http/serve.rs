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
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::call::LocalAddress;
use super::router::App;
use super::{CONNECTIONS_MAX, HEADER_BYTES_MAX, HEADER_TIMEOUT, HttpState, STOP_TIMEOUT};

/// Threads for what blocks; they end when they had nothing to do for a while.
const BLOCKING_THREADS_MAX: usize = 4;
/// How long a blocking thread stays idle.
const BLOCKING_THREAD_IDLE: Duration = Duration::from_secs(5);
/// How long accepting pauses when the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// When a peer that went away without a word is looked for; it holds a stream otherwise.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);

/// What a client gets when all connections are taken.
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n";

/// A running management server. Dropping it stops it too.
#[derive(Debug)]
pub struct HttpHandle {
    state: Arc<HttpState>,
    thread: Option<JoinHandle<()>>,
}

impl HttpHandle {
    /// Stops accepting, ends streams, lets requests under way finish for at most [`STOP_TIMEOUT`], and waits until
    /// the thread has ended.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.state.stopping.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic in there was reported when it happened.
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
    start_with(listener, state, HEADER_TIMEOUT)
}

/// [`start`] with another time for headers to arrive.
pub(super) fn start_with(
    listener: TcpListener,
    state: HttpState,
    header_timeout: Duration,
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
            runtime.block_on(accept(listener, served, header_timeout));
            // A call that still blocks on the disk is not waited for.
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
    header_timeout: Duration,
) {
    let app = App::new(state.clone());
    let mut protocol = http1::Builder::new();
    protocol
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_header_size(HEADER_BYTES_MAX);
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    let mut stopped = std::pin::pin!(state.stopped());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // Finished tasks are taken away, so that they do not pile up.
            Some(_) = connections.join_next() => continue,
            () = &mut stopped => break,
        };
        match accepted {
            Ok((stream, _)) => match free.clone().try_acquire_owned() {
                Ok(place) => {
                    let served = connection(stream, protocol.clone(), app.clone(), state.clone());
                    connections.spawn(async move {
                        served.await;
                        drop(place);
                    });
                }
                // A best effort: who does not read it sees the connection close.
                Err(_) => drop(stream.try_write(FULL)),
            },
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

async fn connection(stream: TcpStream, protocol: http1::Builder, app: App, state: Arc<HttpState>) {
    let Ok(local) = stream.local_addr().map(LocalAddress) else {
        return;
    };
    let socket = SockRef::from(&stream);
    // Without these a connection works as well, only slower or for longer.
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE_IDLE));
    let service = service_fn(move |request: Request<Incoming>| {
        let app = app.clone();
        async move {
            let response = app.call(request.map(Body::new), local).await;
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
        // The client's doing, as a rule: it went away, was too slow, or does not speak HTTP.
        tracing::debug!("management: a connection ended: {error}");
    }
}
