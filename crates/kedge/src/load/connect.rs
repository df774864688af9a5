//! Opening connections before a run, and reconnecting during it.

use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use kedge_protocol::binary::Feature;
use kedge_tls::ClientStream;

use super::generate::share;
use super::options::{LoadPlan, Protocol};
use crate::client::{ClientConnection, ClientError};
use crate::target::ServerUrl;

/// Longest wait for one connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest wait for one reply of a server that accepted the connection.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause between attempts to reconnect.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// The number of threads that open connections before a run; they mostly wait for the server.
const OPENERS: usize = 4;

/// Opens connection number `at` and prepares it for requests.
pub(super) fn open(plan: &LoadPlan, at: usize) -> Result<ClientStream, ClientError> {
    let (host, port) = &plan.nodes[plan.node_of(at)];
    match plan.protocol {
        Protocol::Couchbase => open_couchbase(plan, host, *port)?.into_client_stream(),
        Protocol::Memcached | Protocol::MemcachedText | Protocol::Redis => {
            open_plain(host, *port).map(ClientStream::Plain)
        }
    }
}

/// The vBucket map of a bucket.
pub(super) struct VbucketMap {
    /// The number of vBuckets.
    pub(super) vbuckets: u16,
    /// Host and port of each node.
    pub(super) nodes: Vec<(String, u16)>,
    /// For each vBucket the index of its active node; empty if there is only one node.
    pub(super) actives: Vec<Option<u16>>,
}

/// Asks the first node for the vBucket map of the bucket.
pub(super) fn map(plan: &LoadPlan) -> Result<VbucketMap, ClientError> {
    let (host, port) = &plan.nodes[0];
    let mut connection = open_couchbase(plan, host, *port)?;
    let topology = connection.topology()?;
    let unexpected = |what: String| ClientError::Unexpected {
        address: connection.address().to_owned(),
        what,
    };
    let vbuckets = topology
        .vbuckets
        .ok_or_else(|| unexpected("a bucket without vBuckets".to_owned()))?;
    if topology.servers.len() < 2 {
        // The given address may be the only one that reaches the node.
        return Ok(VbucketMap {
            vbuckets,
            nodes: plan.nodes.clone(),
            actives: Vec::new(),
        });
    }
    if plan.tls.is_some() {
        return Err(unexpected(
            "several nodes, which load uses without TLS only".to_owned(),
        ));
    }
    let mut nodes = Vec::new();
    for server in &topology.servers {
        let address = ServerUrl::parse(&server.replace("$HOST", &bracketed(host)));
        match address {
            Ok(ServerUrl {
                host,
                port: Some(port),
                ..
            }) => nodes.push((host, port)),
            _ => return Err(unexpected(format!("a node at \"{server}\""))),
        }
    }
    Ok(VbucketMap {
        vbuckets,
        nodes,
        actives: topology.actives,
    })
}

fn bracketed(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

fn open_couchbase(plan: &LoadPlan, host: &str, port: u16) -> Result<ClientConnection, ClientError> {
    let tls = plan.tls.as_ref();
    let mut connection = ClientConnection::open_with(host, port, CONNECT_TIMEOUT, tls)?;
    connection.set_answer_timeout(ANSWER_TIMEOUT)?;
    let extra: &[Feature] = if plan.wants_unordered() {
        &[Feature::UnorderedExecution]
    } else {
        &[]
    };
    connection.hello(extra)?;
    if let Some(login) = &plan.login {
        connection.login(login)?;
    }
    connection.select_bucket(&plan.bucket)?;
    Ok(connection)
}

fn open_plain(host: &str, port: u16) -> Result<TcpStream, ClientError> {
    let address = format!("{}:{port}", bracketed(host));
    let failed = |source| ClientError::Connect {
        address: address.clone(),
        source,
    };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for candidate in (host, port).to_socket_addrs().map_err(failed)? {
        match TcpStream::connect_timeout(&candidate, CONNECT_TIMEOUT) {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(failed)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

/// Opens all connections of the plan.
pub(super) fn open_all(plan: &LoadPlan) -> Result<Vec<ClientStream>, ClientError> {
    let openers = OPENERS.min(plan.connections);
    thread::scope(|scope| {
        let part = |opener: usize| {
            let part = share(plan.connections as u64, opener, openers);
            move || {
                part.map(|at| open(plan, at as usize))
                    .collect::<Result<Vec<_>, _>>()
            }
        };
        let threads: Vec<_> = (0..openers)
            .map(|opener| scope.spawn(part(opener)))
            .collect();
        let mut all = Vec::with_capacity(plan.connections);
        for thread in threads {
            all.extend(
                thread
                    .join()
                    .expect("opening a connection does not panic")?,
            );
        }
        Ok(all)
    })
}

/// The outcome of an attempt to reconnect.
pub(super) type Reopened = (usize, Result<ClientStream, ClientError>);

/// Reconnects lost connections on a thread of its own, as a login blocks.
pub(super) struct Reconnector {
    lost: Sender<(usize, Instant)>,
    reopened: Arc<Mutex<Vec<Reopened>>>,
}

impl Reconnector {
    /// Starts the thread, which calls `wake` when [`take`](Self::take) has a result, and ends when the `Reconnector` is
    /// dropped. `first` is the index of the thread's first connection.
    pub(super) fn start(
        plan: Arc<LoadPlan>,
        first: usize,
        wake: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let (lost, inbox) = mpsc::channel();
        let reopened = Arc::new(Mutex::new(Vec::new()));
        let results = Arc::clone(&reopened);
        thread::Builder::new()
            .name("kedge-reconnect".to_owned())
            .spawn(move || {
                reconnect(&plan, first, &inbox, |result| {
                    results
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(result);
                    wake();
                });
            })?;
        Ok(Self { lost, reopened })
    }

    /// Requests a reconnect of a lost connection.
    pub(super) fn lost(&self, connection: usize) {
        // The thread lives as long as the sender.
        let _ = self.lost.send((connection, Instant::now()));
    }

    /// Returns the results since the last call.
    pub(super) fn take(&self) -> Vec<Reopened> {
        std::mem::take(&mut *self.reopened.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn reconnect(
    plan: &LoadPlan,
    first: usize,
    inbox: &Receiver<(usize, Instant)>,
    report: impl Fn(Reopened),
) {
    while let Ok((connection, since)) = inbox.recv() {
        let mut result = open(plan, first + connection);
        while result.is_err() && since.elapsed() < plan.reconnect {
            thread::sleep(RETRY_PAUSE);
            result = open(plan, first + connection);
        }
        report((connection, result));
    }
}
