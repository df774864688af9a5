//! Watches of etcd: a task on the client's thread follows the changes, and makes lost connections again.
//!
//! Invariants:
//! * Events leave the task in the order of revisions, each revision once, and all events of a revision together.
//! * A new connection resumes after the last revision that was passed on, and first checks that the store has it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_client::{EventType, WatchOptions, WatchResponse, WatchStream};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::{Change, CoordinationError, ReadAgain, Revision, StorePosition, Watch, WatchEvent};

use super::connection::{Backoff, Connector, position};
use super::{MESSAGE_BYTES_MAX, convert};

/// The largest number of events that wait for the caller; then etcd keeps the next ones.
const PENDING_MAX: usize = 64;
/// The time for a connection and the beginning of the watch.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// The caller's end.
#[derive(Debug)]
pub(super) struct EtcdWatch {
    runtime: Arc<Runtime>,
    events: mpsc::Receiver<WatchEvent>,
    problem: Arc<Mutex<Option<Problem>>>,
    task: AbortHandle,
    ended: Option<WatchEvent>,
}

/// The reason why there is no connection now.
#[derive(Clone, Debug)]
enum Problem {
    Unreachable(String),
    NoPermission(String),
}

/// The task's end.
#[derive(Debug)]
struct Follower {
    connector: Arc<Connector>,
    after: u64,
    events: mpsc::Sender<WatchEvent>,
    problem: Arc<Mutex<Option<Problem>>>,
}

/// The reason why a connection is not followed any more.
#[derive(Debug)]
enum Stop {
    /// The connection was lost.
    Lost(Problem),
    /// Everything has to be read again.
    Ended(ReadAgain),
    /// The caller has dropped the watch.
    Dropped,
}

impl EtcdWatch {
    pub(super) fn new(runtime: Arc<Runtime>, connector: Arc<Connector>, after: Revision) -> Self {
        let (sender, events) = mpsc::channel(PENDING_MAX);
        let problem = Arc::new(Mutex::new(None));
        let follower = Follower {
            connector,
            after: after.0,
            events: sender,
            problem: problem.clone(),
        };
        let task = runtime.spawn(follower.run()).abort_handle();
        EtcdWatch {
            runtime,
            events,
            problem,
            task,
            ended: None,
        }
    }
}

impl Drop for EtcdWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watch for EtcdWatch {
    fn next(&mut self, wait: Duration) -> Result<Option<WatchEvent>, CoordinationError> {
        if let Some(event) = &self.ended {
            return Ok(Some(event.clone()));
        }
        let events = &mut self.events;
        let received = self
            .runtime
            .block_on(async { timeout(wait, events.recv()).await });
        match received {
            Ok(Some(event)) => {
                if matches!(event, WatchEvent::ReadAgain(_)) {
                    self.ended = Some(event.clone());
                }
                return Ok(Some(event));
            }
            Ok(None) => {
                let why = "the task of the watch has ended".to_owned();
                return Err(CoordinationError::Damaged(why));
            }
            Err(_) => {}
        }
        let problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        match problem.clone() {
            None => Ok(None),
            Some(Problem::Unreachable(why)) => Err(CoordinationError::Unreachable(why)),
            Some(Problem::NoPermission(why)) => Err(CoordinationError::NoPermission(why)),
        }
    }
}

impl Follower {
    async fn run(mut self) {
        let mut backoff = Backoff::new();
        loop {
            let before = self.after;
            match self.follow().await {
                Stop::Dropped => return,
                Stop::Ended(why) => {
                    let _ = self.events.send(WatchEvent::ReadAgain(why)).await;
                    return;
                }
                Stop::Lost(problem) => self.set_problem(Some(problem)),
            }
            if self.after != before {
                backoff = Backoff::new();
            }
            sleep_until(backoff.next()).await;
        }
    }

    fn set_problem(&self, problem: Option<Problem>) {
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }

    /// Follows one connection as long as it lasts.
    async fn follow(&mut self) -> Stop {
        let deadline = Instant::now() + OPEN_TIMEOUT;
        let connection = match self.connector.connection(deadline).await {
            Ok(connection) => connection,
            Err(error) => return stop_of(error),
        };
        let before = self.connector.seen.last();
        let opened = timeout_at(deadline, async {
            let header = self
                .connector
                .quorum_read(connection.client.clone())
                .await?;
            let found = self.connector.observe(before, &header)?;
            let prefix = self.connector.prefix.as_str();
            let client = connection.client.watch_client();
            let mut client = client.max_decoding_message_size(MESSAGE_BYTES_MAX);
            let stream = client.watch(prefix, Some(self.options())).await?;
            Ok((found, stream))
        });
        let stop = match opened.await {
            Ok(Ok((found, _))) if found.revision.0 < self.after => {
                return Stop::Ended(ReadAgain::WentBackwards);
            }
            Ok(Ok((found, mut stream))) => self.pass_on(found, &mut stream).await,
            Ok(Err(super::Failure::Final(error))) => stop_of(error),
            Ok(Err(super::Failure::NoEffect(why) | super::Failure::Lost(why))) => {
                Stop::Lost(Problem::Unreachable(why))
            }
            Err(_) => Stop::Lost(Problem::Unreachable("no answer in time".to_owned())),
        };
        if matches!(stop, Stop::Lost(Problem::Unreachable(_))) {
            self.connector.give_up(&connection);
        }
        stop
    }

    /// The watch begins at the revision that is known already, not at the next: a compaction at the next one may have
    /// removed a deletion of that revision, and etcd 3.4 starts a watch there as if it had not.
    fn options(&self) -> WatchOptions {
        let first = i64::try_from(self.after.max(1)).unwrap_or(i64::MAX);
        WatchOptions::new().with_prefix().with_start_revision(first)
    }

    async fn pass_on(&mut self, store: StorePosition, stream: &mut WatchStream) -> Stop {
        loop {
            let response = match stream.message().await {
                Ok(Some(response)) => response,
                Ok(None) => {
                    let why = "the connection was closed".to_owned();
                    return Stop::Lost(Problem::Unreachable(why));
                }
                Err(error) => return Stop::Lost(Problem::Unreachable(error.to_string())),
            };
            if let Some(stop) = check(store, &response) {
                return stop;
            }
            self.set_problem(None);
            for (revision, changes) in self.changes(&response) {
                self.after = revision.0;
                let event = WatchEvent::Changes { revision, changes };
                self.connector
                    .seen
                    .note(StorePosition { revision, ..store });
                if self.events.send(event).await.is_err() {
                    return Stop::Dropped;
                }
            }
        }
    }

    /// The changes that are new, by revision.
    fn changes(&self, response: &WatchResponse) -> BTreeMap<Revision, Vec<Change>> {
        let prefix = &self.connector.prefix;
        let mut changes: BTreeMap<Revision, Vec<Change>> = BTreeMap::new();
        for event in response.events() {
            let Some(found) = event.kv() else {
                continue;
            };
            let revision = convert::revision(found.mod_revision());
            if revision.0 <= self.after {
                continue;
            }
            let change = match event.event_type() {
                EventType::Put => Change::Put(convert::entry(prefix, found)),
                EventType::Delete => Change::Delete(convert::key(prefix, found)),
            };
            changes.entry(revision).or_default().push(change);
        }
        changes
    }
}

/// Returns why the watch cannot go on, if this response says so.
fn check(store: StorePosition, response: &WatchResponse) -> Option<Stop> {
    let is_other = |header| position(header).store != store.store;
    if response.header().is_some_and(is_other) {
        return Some(Stop::Ended(ReadAgain::WentBackwards));
    }
    if response.compact_revision() != 0 {
        return Some(Stop::Ended(ReadAgain::Compacted));
    }
    response.canceled().then(|| {
        let why = response.cancel_reason().to_owned();
        if why.contains("permission denied") {
            Stop::Lost(Problem::NoPermission(why))
        } else {
            Stop::Lost(Problem::Unreachable(why))
        }
    })
}

fn stop_of(error: CoordinationError) -> Stop {
    match error {
        CoordinationError::WentBackwards { .. } => Stop::Ended(ReadAgain::WentBackwards),
        CoordinationError::NoPermission(why) => Stop::Lost(Problem::NoPermission(why)),
        CoordinationError::Unreachable(why) => Stop::Lost(Problem::Unreachable(why)),
        other => Stop::Lost(Problem::Unreachable(other.to_string())),
    }
}
