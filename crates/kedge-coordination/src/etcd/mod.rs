//! The store in etcd, by its v3 API. Versions 3.4 and later.
//!
//! A client has a thread of its own, with a tokio runtime, on which connections live. The calls of other threads wait for
//! it.
//!
//! # A store that went backwards
//!
//! The restore of a backup gives etcd an older revision, or another cluster id, and both are noticed when a connection is
//! made and with each answer. They are not noticed if the restored store has the same cluster id, and has passed the
//! revision that was seen again, before anyone connects: a restore should have another `--initial-cluster-token`, which
//! gives it another cluster id.

mod config;
mod connection;
mod convert;
mod failure;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, GetOptions};
use tokio::runtime::{Builder, Runtime};

use crate::{
    CoordinationError, Coordinator, Revision, Snapshot, StorePosition, Transaction, Watch,
};

pub use config::{EtcdConfig, EtcdTls, EtcdUser};
use connection::{Connector, no_header};
use failure::Failure;
use watch::EtcdWatch;

/// The largest message that is accepted from etcd. A watch that is far behind gets up to a thousand revisions at once.
const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// A coordination store in etcd.
pub struct Etcd {
    runtime: Arc<Runtime>,
    connector: Arc<Connector>,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("connector", &self.connector)
            .finish_non_exhaustive()
    }
}

impl Etcd {
    /// Creates a client, which connects at the first call. `seen` is the newest position that an earlier client has seen.
    ///
    /// # Errors
    /// `Refused` if the system gives no thread.
    pub fn new(config: EtcdConfig, seen: Option<StorePosition>) -> Result<Self, CoordinationError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("kedge-etcd")
            .enable_all()
            .build()
            .map_err(|error| CoordinationError::Refused(format!("no thread for etcd: {error}")))?;
        Ok(Etcd {
            runtime: Arc::new(runtime),
            connector: Arc::new(Connector::new(config, seen)),
        })
    }

    /// Runs a request that may have its effect twice.
    fn repeat<T, Call, Answer>(&self, timeout: Duration, call: Call) -> Result<T, CoordinationError>
    where
        Call: Fn(Client, Option<StorePosition>) -> Answer,
        Answer: Future<Output = Result<T, Failure>>,
    {
        self.runtime
            .block_on(self.connector.run(timeout, true, call))
    }
}

impl Coordinator for Etcd {
    fn read_prefix(&self, under: &str, timeout: Duration) -> Result<Snapshot, CoordinationError> {
        let connector = &self.connector;
        let prefix = connector.prefix.as_str();
        let wanted = &format!("{prefix}{under}");
        self.repeat(timeout, |client, before| async move {
            let client = client.kv_client();
            let mut client = client.max_decoding_message_size(MESSAGE_BYTES_MAX);
            let options = GetOptions::new().with_prefix();
            let answer = client.get(wanted.as_str(), Some(options)).await?;
            let header = answer.header().ok_or_else(no_header)?;
            let position = connector.observe(before, header)?;
            let entries = answer.kvs().iter();
            Ok(Snapshot {
                position,
                entries: entries.map(|it| convert::entry(prefix, it)).collect(),
            })
        })
    }

    fn transact(
        &self,
        transaction: &Transaction,
        timeout: Duration,
    ) -> Result<Revision, CoordinationError> {
        transaction.check()?;
        let connector = &self.connector;
        let prefix = connector.prefix.as_str();
        let call = |mut client: Client, before| async move {
            let request = convert::transaction(prefix, transaction);
            let answer = client.txn(request).await?;
            let header = answer.header().ok_or_else(no_header)?;
            let revision = connector.observe(before, header)?.revision;
            if answer.succeeded() {
                return Ok(revision);
            }
            let conflict = convert::conflict(prefix, transaction, revision, &answer);
            Err(CoordinationError::Conflict(conflict).into())
        };
        self.runtime
            .block_on(self.connector.run(timeout, false, call))
    }

    fn watch(&self, after: Revision) -> Result<Box<dyn Watch>, CoordinationError> {
        self.connector.seen.newest()?;
        let watch = EtcdWatch::new(self.runtime.clone(), self.connector.clone(), after);
        Ok(Box::new(watch))
    }

    fn seen(&self) -> Option<StorePosition> {
        self.connector.seen.last()
    }
}
