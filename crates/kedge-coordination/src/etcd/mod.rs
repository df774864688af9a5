//! The store in etcd, by its v3 API. Versions 3.4 and later.
//!
//! A client has a thread of its own, with a tokio runtime, on which connections live. The calls of other threads wait for
//! it.
//!
//! # Renewals of leases
//!
//! etcd's leader renews a lease in its memory, without asking the other members. A leader that was paused, and was deposed
//! meanwhile without knowing, may therefore renew a lease that its successor lets expire. (Newer versions check that.) A
//! renewal counts here only if a read by a quorum, after it and by the same member, was made in the same term of the
//! leader: then there was no other leader at the time of the renewal.
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

use etcd_client::{Client, Error, GetOptions};
use tokio::runtime::{Builder, Runtime};

use crate::{
    CoordinationError, Coordinator, DriftBound, Lease, LeaseId, Moment, Revision, Snapshot,
    StorePosition, Transaction, Watch,
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
    drift: DriftBound,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("connector", &self.connector)
            .field("drift", &self.drift)
            .finish_non_exhaustive()
    }
}

impl Etcd {
    /// Creates a client, which connects at the first call. `seen` is the newest position that an earlier client has seen.
    ///
    /// # Errors
    /// `Refused` if the system gives no thread.
    pub fn new(
        config: EtcdConfig,
        drift: DriftBound,
        seen: Option<StorePosition>,
    ) -> Result<Self, CoordinationError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("kedge-etcd")
            .enable_all()
            .build()
            .map_err(|error| CoordinationError::Refused(format!("no thread for etcd: {error}")))?;
        Ok(Etcd {
            runtime: Arc::new(runtime),
            connector: Arc::new(Connector::new(config, seen)),
            drift,
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

    async fn renew(&self, mut client: Client, lease: LeaseId) -> Result<Moment, Failure> {
        // The crate hides the first response of a stream.
        let opened = client.lease_keep_alive(lease.0).await;
        let (mut keeper, mut responses) = opened.map_err(|error| match error {
            Error::LeaseKeepAliveError(_) => Failure::Final(CoordinationError::NoLease(lease)),
            other => other.into(),
        })?;
        let sent = Moment::now();
        keeper.keep_alive().await?;
        let closed = || Failure::Lost("the renewals were closed".to_owned());
        let renewed = responses.message().await?.ok_or_else(closed)?;
        let ttl = seconds(renewed.ttl());
        if ttl.is_zero() {
            return Err(CoordinationError::NoLease(lease).into());
        }
        // etcd fills in this header before it renews the lease, so the term is that of the renewal or an older one.
        let renewal = renewed.header().ok_or_else(no_header)?;
        let read = self.connector.quorum_read(client).await?;
        if (renewal.member_id(), renewal.raft_term()) != (read.member_id(), read.raft_term()) {
            return Err(Failure::NoEffect("the leader has changed".to_owned()));
        }
        Ok(self.drift.valid_until(sent, ttl))
    }
}

impl Coordinator for Etcd {
    fn read(&self, timeout: Duration) -> Result<Snapshot, CoordinationError> {
        let connector = &self.connector;
        let prefix = connector.prefix.as_str();
        self.repeat(timeout, |client, before| async move {
            let client = client.kv_client();
            let mut client = client.max_decoding_message_size(MESSAGE_BYTES_MAX);
            let options = GetOptions::new().with_prefix();
            let answer = client.get(prefix, Some(options)).await?;
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
            let answer = client.txn(request).await;
            let answer = answer.map_err(|error| missing_lease(error, transaction))?;
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

    fn grant(&self, ttl: Duration, timeout: Duration) -> Result<Lease, CoordinationError> {
        let wanted = i64::try_from(ttl.as_millis().div_ceil(1_000)).unwrap_or(i64::MAX);
        let connector = &self.connector;
        let drift = self.drift;
        self.repeat(timeout, |mut client, before| async move {
            let sent = Moment::now();
            let granted = client.lease_grant(wanted.max(1), None).await?;
            let header = granted.header().ok_or_else(no_header)?;
            connector.observe(before, header)?;
            let ttl = seconds(granted.ttl());
            Ok(Lease {
                id: LeaseId(granted.id()),
                ttl,
                valid_until: drift.valid_until(sent, ttl),
            })
        })
    }

    fn keep_alive(&self, lease: LeaseId, timeout: Duration) -> Result<Moment, CoordinationError> {
        self.repeat(timeout, |client, _| self.renew(client, lease))
    }

    fn revoke(&self, lease: LeaseId, timeout: Duration) -> Result<(), CoordinationError> {
        let connector = &self.connector;
        self.repeat(timeout, |mut client, before| async move {
            let revoked = client.lease_revoke(lease.0).await;
            let revoked = revoked.map_err(|error| if_no_lease(error, lease))?;
            let header = revoked.header().ok_or_else(no_header)?;
            connector.observe(before, header)?;
            Ok(())
        })
    }

    fn seen(&self) -> Option<StorePosition> {
        self.connector.seen.last()
    }
}

fn seconds(number: i64) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or(0))
}

/// The failure of a transaction; etcd does not say which of its leases is missing.
fn missing_lease(error: Error, transaction: &Transaction) -> Failure {
    let lease = transaction.leases().next();
    match lease {
        Some(lease) => if_no_lease(error, lease),
        None => error.into(),
    }
}

fn if_no_lease(error: Error, lease: LeaseId) -> Failure {
    let is_missing = |error: &Error| match error {
        Error::GRpcStatus(status) => status.message().contains("requested lease not found"),
        _ => false,
    };
    if is_missing(&error) {
        CoordinationError::NoLease(lease).into()
    } else {
        error.into()
    }
}
