//! The connection to one member of etcd at a time, and the requests that are sent on it.
//!
//! Invariants:
//! * A connection is used only after a linearizable read on it has shown that the store did not go backwards.
//! * A request is sent again only if it had no effect, or may have it twice.

use std::fs;
use std::future::Future;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{
    Certificate, Client, ConnectOptions, GetOptions, Identity, ResponseHeader, TlsOptions,
};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::position::Seen;
use crate::{CoordinationError, Revision, StorePosition};

use super::config::{EtcdConfig, EtcdTls};
use super::failure::Failure;

/// The pause after all members were tried, which is doubled each time.
pub(super) const BACKOFF_MIN: Duration = Duration::from_millis(25);
/// The longest pause.
pub(super) const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// The shortest time for one member.
const ATTEMPT_MIN: Duration = Duration::from_millis(100);
/// Pings of an open connection. etcd closes one that has them more often than every 5 s, or without a stream.
const PING_INTERVAL: Duration = Duration::from_secs(6);
/// The time for the response to a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(3);

/// The connections to a store.
#[derive(Debug)]
pub(super) struct Connector {
    config: EtcdConfig,
    /// The prefix with which all keys begin.
    pub(super) prefix: String,
    pub(super) seen: Seen,
    slot: Mutex<Slot>,
    /// Held by the one that makes a connection, which others wait for, each until its own deadline.
    connecting: tokio::sync::Mutex<()>,
}

/// The connection in use. It is locked for a moment only.
#[derive(Debug, Default)]
struct Slot {
    current: Option<Connection>,
    /// The endpoint of the next connection, modulo their number.
    next: usize,
    number: u64,
}

/// A connection.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) client: Client,
    number: u64,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl Connector {
    pub(super) fn new(config: EtcdConfig, seen: Option<StorePosition>) -> Self {
        Connector {
            prefix: format!("/{}/", config.prefix),
            config,
            seen: Seen::new(seen),
            slot: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        }
    }

    /// Runs a request, on other connections again while it had no effect. One that is `repeatable` is also sent again
    /// after its answer was lost.
    pub(super) async fn run<T, Call, Answer>(
        &self,
        timeout: Duration,
        repeatable: bool,
        call: Call,
    ) -> Result<T, CoordinationError>
    where
        Call: Fn(Client, Option<StorePosition>) -> Answer,
        Answer: Future<Output = Result<T, Failure>>,
    {
        let deadline = Instant::now() + timeout;
        let mut backoff = Backoff::new();
        loop {
            let connection = self.connection(deadline).await?;
            let before = self.seen.newest()?;
            let limit = if repeatable {
                self.attempt_limit(deadline)
            } else {
                deadline
            };
            let answer = timeout_at(limit, call(connection.client.clone(), before)).await;
            let why = match answer {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(Failure::Final(error))) => return Err(error),
                Ok(Err(Failure::Lost(why))) if !repeatable => {
                    self.give_up(&connection);
                    return Err(CoordinationError::OutcomeUnknown(why));
                }
                Ok(Err(Failure::NoEffect(why) | Failure::Lost(why))) => why,
                Err(_) if repeatable => "no answer in time".to_owned(),
                Err(_) => {
                    self.give_up(&connection);
                    let why = "no answer in time".to_owned();
                    return Err(CoordinationError::OutcomeUnknown(why));
                }
            };
            self.give_up(&connection);
            if Instant::now() >= deadline {
                return Err(CoordinationError::Unreachable(why));
            }
            sleep_until(deadline.min(backoff.next())).await;
        }
    }

    /// Returns the connection, or makes one to a member that answers.
    pub(super) async fn connection(
        &self,
        deadline: Instant,
    ) -> Result<Connection, CoordinationError> {
        let unreachable = |why: &str| CoordinationError::Unreachable(why.to_owned());
        self.seen.newest()?;
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        let turn = timeout_at(deadline, self.connecting.lock()).await;
        let _turn = turn.map_err(|_| unreachable("no member of etcd has answered yet"))?;
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        let endpoints = &self.config.endpoints;
        let mut backoff = Backoff::new();
        let mut why = "no time is left".to_owned();
        loop {
            for _ in endpoints {
                let endpoint = &endpoints[self.slot().next % endpoints.len()];
                let limit = self.attempt_limit(deadline);
                why = match timeout_at(limit, self.connect(endpoint)).await {
                    Ok(Ok(client)) => return Ok(self.use_client(client)),
                    Ok(Err(Failure::Final(error))) => return Err(error),
                    Ok(Err(Failure::NoEffect(why) | Failure::Lost(why))) => {
                        format!("{endpoint}: {why}")
                    }
                    Err(_) => format!("{endpoint}: no answer in time"),
                };
                self.slot().next += 1;
                if Instant::now() >= deadline {
                    return Err(unreachable(&why));
                }
            }
            let until = backoff.next();
            if until >= deadline {
                return Err(unreachable(&why));
            }
            sleep_until(until).await;
        }
    }

    fn current(&self) -> Option<Connection> {
        self.slot().current.clone()
    }

    fn use_client(&self, client: Client) -> Connection {
        let mut slot = self.slot();
        slot.number += 1;
        let number = slot.number;
        let connection = Connection { client, number };
        slot.current = Some(connection.clone());
        connection
    }

    /// Stops using a connection that failed; the next one is to another member.
    pub(super) fn give_up(&self, failed: &Connection) {
        let mut slot = self.slot();
        let is_current = |it: &Connection| it.number == failed.number;
        if slot.current.as_ref().is_some_and(is_current) {
            slot.current = None;
            slot.next += 1;
        }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves time for the other members.
    fn attempt_limit(&self, deadline: Instant) -> Instant {
        let members = u32::try_from(self.config.endpoints.len()).unwrap_or(u32::MAX);
        let now = Instant::now();
        let share = deadline.saturating_duration_since(now) / members.max(1);
        deadline.min(now + share.max(ATTEMPT_MIN))
    }

    /// Connects to a member, logs in, and checks the position of the store.
    async fn connect(&self, endpoint: &str) -> Result<Client, Failure> {
        let before = self.seen.newest()?;
        let options = self.connect_options()?;
        let client = Client::connect([endpoint], Some(options)).await?;
        let header = self.quorum_read(client.clone()).await?;
        self.observe(before, &header)?;
        Ok(client)
    }

    /// Reads nothing, but from a quorum: its answer shows a position that is not older than any answer before.
    pub(super) async fn quorum_read(&self, mut client: Client) -> Result<ResponseHeader, Failure> {
        let options = GetOptions::new().with_prefix().with_count_only();
        let mut read = client.get(self.prefix.as_str(), Some(options)).await?;
        read.take_header().ok_or_else(no_header)
    }

    /// Notes the position in an answer to a request that began when `before` was the newest.
    pub(super) fn observe(
        &self,
        before: Option<StorePosition>,
        header: &ResponseHeader,
    ) -> Result<StorePosition, CoordinationError> {
        let found = position(header);
        self.seen.observe(before, found)?;
        Ok(found)
    }

    fn connect_options(&self) -> Result<ConnectOptions, CoordinationError> {
        let mut options = ConnectOptions::new()
            .with_keep_alive(PING_INTERVAL, PING_TIMEOUT)
            .with_keep_alive_while_idle(false)
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some(tls) = &self.config.tls {
            options = options.with_tls(tls_options(tls)?);
        }
        if let Some(user) = &self.config.user {
            let password = String::from_utf8(read(&user.password_file)?).map_err(|_| {
                let file = user.password_file.display();
                CoordinationError::Invalid(format!("{file} is not text"))
            })?;
            let password = password.lines().next().unwrap_or_default();
            options = options.with_user(&user.name, password);
        }
        Ok(options)
    }
}

/// Pauses that grow.
#[derive(Debug)]
pub(super) struct Backoff {
    pause: Duration,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Backoff { pause: BACKOFF_MIN }
    }

    /// Returns the end of the next pause.
    pub(super) fn next(&mut self) -> Instant {
        let until = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(BACKOFF_MAX);
        until
    }
}

/// The position that a header names.
pub(super) fn position(header: &ResponseHeader) -> StorePosition {
    StorePosition {
        store: header.cluster_id(),
        revision: Revision(u64::try_from(header.revision()).unwrap_or(0)),
    }
}

pub(super) fn no_header() -> Failure {
    CoordinationError::Damaged("an answer of etcd has no header".to_owned()).into()
}

fn tls_options(tls: &EtcdTls) -> Result<TlsOptions, CoordinationError> {
    let mut options = TlsOptions::new().ca_certificate(Certificate::from_pem(read(&tls.ca)?));
    if let Some((certificate, key)) = &tls.identity {
        options = options.identity(Identity::from_pem(read(certificate)?, read(key)?));
    }
    if let Some(name) = &tls.server_name {
        options = options.domain_name(name);
    }
    Ok(options)
}

fn read(path: &Path) -> Result<Vec<u8>, CoordinationError> {
    fs::read(path).map_err(|error| {
        CoordinationError::Invalid(format!("cannot read {}: {error}", path.display()))
    })
}
