//! Opening connections before a run, and getting lost ones back during it.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use kedge_protocol::binary::Feature;

use super::options::{Plan, Protocol};
use crate::client::{ClientError, Connection};

/// Longest wait for one connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for one answer of a server that accepted us.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between attempts to get a connection back.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Threads that open connections before a run; they mostly wait for the server.
const OPENERS: usize = 4;

/// Opens one connection, up to where requests can be sent.
pub(super) fn open(plan: &Plan) -> Result<TcpStream, ClientError> {
    match plan.protocol {
        Protocol::Couchbase => open_couchbase(plan)?.into_stream(),
        Protocol::Memcached | Protocol::MemcachedText | Protocol::Redis => open_plain(plan),
    }
}

/// Opens a connection and asks how many vBuckets the bucket has.
pub(super) fn vbuckets(plan: &Plan) -> Result<u16, ClientError> {
    let mut connection = open_couchbase(plan)?;
    let topology = connection.topology()?;
    topology.vbuckets.ok_or_else(|| ClientError::Unexpected {
        address: connection.address().to_owned(),
        what: "a bucket without vBuckets".to_owned(),
    })
}

fn open_couchbase(plan: &Plan) -> Result<Connection, ClientError> {
    let mut connection = Connection::open(&plan.host, plan.port, CONNECT_TIMEOUT)?;
    connection.set_answer_timeout(ANSWER_TIMEOUT)?;
    let extra: &[Feature] = if plan.wants_unordered() {
        &[Feature::UnorderedExecution]
    } else {
        &[]
    };
    connection.hello(extra)?;
    connection.login(&plan.login)?;
    connection.select_bucket(&plan.bucket)?;
    Ok(connection)
}

fn open_plain(plan: &Plan) -> Result<TcpStream, ClientError> {
    let address = format!("{}:{}", plan.host, plan.port);
    let failed = |source| ClientError::Connect {
        address: address.clone(),
        source,
    };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for candidate in (plan.host.as_str(), plan.port)
        .to_socket_addrs()
        .map_err(failed)?
    {
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
pub(super) fn open_all(plan: &Plan) -> Result<Vec<TcpStream>, ClientError> {
    let openers = OPENERS.min(plan.connections);
    thread::scope(|scope| {
        let part = |opener: usize| {
            let count = (opener..plan.connections).step_by(openers).len();
            move || {
                (0..count)
                    .map(|_| open(plan))
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

/// A connection that came back, or did not.
pub(super) type Reopened = (usize, Result<TcpStream, ClientError>);

/// Gets lost connections back on a thread of its own, as a login blocks.
pub(super) struct Reconnector {
    lost: Sender<(usize, Instant)>,
    reopened: Arc<Mutex<Vec<Reopened>>>,
}

impl Reconnector {
    /// Starts the thread, which calls `wake` when there is something to [`take`](Self::take), and
    /// ends when the `Reconnector` is dropped.
    pub(super) fn start(plan: Arc<Plan>, wake: impl Fn() + Send + 'static) -> io::Result<Self> {
        let (lost, inbox) = mpsc::channel();
        let reopened = Arc::new(Mutex::new(Vec::new()));
        let results = Arc::clone(&reopened);
        thread::Builder::new()
            .name("kedge-reconnect".to_owned())
            .spawn(move || {
                reconnect(&plan, &inbox, |result| {
                    results
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(result);
                    wake();
                });
            })?;
        Ok(Self { lost, reopened })
    }

    /// A connection was lost.
    pub(super) fn lost(&self, connection: usize) {
        // The thread lives as long as the sender.
        let _ = self.lost.send((connection, Instant::now()));
    }

    /// What came back since the last call.
    pub(super) fn take(&self) -> Vec<Reopened> {
        std::mem::take(&mut *self.reopened.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn reconnect(plan: &Plan, inbox: &Receiver<(usize, Instant)>, report: impl Fn(Reopened)) {
    while let Ok((connection, since)) = inbox.recv() {
        let mut result = open(plan);
        while result.is_err() && since.elapsed() < plan.reconnect {
            thread::sleep(RETRY_PAUSE);
            result = open(plan);
        }
        report((connection, result));
    }
}
