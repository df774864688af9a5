//! The coordination store of the cluster, with the keys of this crate.
//!
//! | key | value | written by |
//! |---|---|---|
//! | `map` | the [`ClusterMap`] | the node that changes the cluster |
//! | `secret` | the [`ClusterSecret`] | the first node, or `kedge cluster-run` |
//! | `nodes/NAME` | the [`NodeRecord`] of a node | the node, at its start |
//! | `alive/NAME` | the lease of a node | the node, again and again; who fails it over |
//! | `orchestrator` | the orchestrator | the node that takes the office |
//! | `settings/auto_failover` | the settings and the count of automatic failovers | any node |
//! | `users/common`, `users/GENERATION/...` | the [users](super::users) and groups | the node that changes them |
//!
//! Invariants:
//! * The map changes by transactions that compare the revision of the store in which the key was changed last. A map that
//!   is followed anywhere is, or was, in the store.
//! * A handle that has noticed that the store went backwards is not used again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kedge_auth::COMMON_DOCUMENT;
use kedge_cluster::{ClusterError, ClusterMap, ClusterSecret, NodeRecord, Release};
use kedge_coordination::{
    Change, Compare, CoordinationError, Coordinator, Revision, Snapshot, StoreAddress,
    StorePosition, Transaction, Watch,
};
use kedge_node::coordination::{ChangeError, LeaseStatus, StoreStatus};
use kedge_sync::{RankedMutex, ranks::ClusterStore};

/// The key of the map.
pub(super) const MAP_KEY: &str = "map";
/// The key of the office of the orchestrator.
pub(super) const ORCHESTRATOR_KEY: &str = "orchestrator";
/// The key of the settings of automatic failover.
pub(super) const AUTO_FAILOVER_KEY: &str = "settings/auto_failover";
/// The beginning of the keys of leases.
pub(super) const ALIVE_KEYS: &str = "alive/";
/// The beginning of the keys of nodes' records.
const RECORD_KEYS: &str = "nodes/";
/// The beginning of the keys of the users' documents.
pub(super) const USERS_KEYS: &str = "users/";
/// The key of the secret.
const SECRET_KEY: &str = "secret";
/// The timeout of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the key of a node's record.
fn record_key(node: &str) -> String {
    format!("{RECORD_KEYS}{node}")
}

/// Returns the change that puts the record of a node.
pub(super) fn record_put(node: &str, record: &NodeRecord) -> Transaction {
    Transaction::new().put(record_key(node), record.to_json())
}

/// Returns the records of all nodes, by name, but for those that cannot be read.
fn stored_records(snapshot: &Snapshot) -> BTreeMap<String, StoredRecord> {
    let of_entry = |entry: &kedge_coordination::Entry| {
        let name = entry.key.strip_prefix(RECORD_KEYS)?;
        let stored = StoredRecord {
            record: NodeRecord::from_json(&entry.value).ok()?,
            unchanged: Compare::Unchanged(entry.key.clone(), entry.mod_revision),
        };
        Some((name.to_owned(), stored))
    };
    snapshot.entries.iter().filter_map(of_entry).collect()
}

/// Returns the key of a node's lease.
pub(super) fn alive_key(node: &str) -> String {
    format!("{ALIVE_KEYS}{node}")
}

/// The map in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredMap {
    pub(super) map: ClusterMap,
    /// The revision of the store in which the key was changed.
    pub(super) revision: Revision,
}

impl StoredMap {
    fn read(entry: &kedge_coordination::Entry) -> Result<Self, ClusterError> {
        Ok(Self {
            map: ClusterMap::from_json(&entry.value)?,
            revision: entry.mod_revision,
        })
    }
}

/// Returns the map in a snapshot; `None` if there is none.
pub(super) fn map_in(snapshot: &Snapshot) -> Result<Option<StoredMap>, StoreError> {
    let entry = snapshot.entry(MAP_KEY);
    Ok(entry.map(StoredMap::read).transpose()?)
}

/// Returns the revision of the map in a snapshot; `None` if there is none, or it cannot be read.
pub(super) fn map_revision(snapshot: &Snapshot) -> Option<kedge_cluster::Revision> {
    Some(map_in(snapshot).ok()??.map.revision)
}

/// The keys that a node reads, at one revision of the store.
#[derive(Clone, Debug)]
pub(super) struct StoredState {
    pub(super) map: Option<StoredMap>,
    pub(super) record: Option<NodeRecord>,
    /// The records of all nodes, by name, but for those that cannot be read.
    pub(super) records: BTreeMap<String, StoredRecord>,
    /// True if a process of the node has had a lease since the node was failed over last.
    pub(super) has_run: bool,
    /// The revision of the store.
    pub(super) revision: Revision,
}

/// The record of a node in the store.
#[derive(Clone, Debug)]
pub(super) struct StoredRecord {
    pub(super) record: NodeRecord,
    /// The compare of its key.
    pub(super) unchanged: Compare,
}

impl StoredState {
    /// Checks that a release supports the level in force.
    pub(super) fn check_level(&self, release: Release) -> Result<(), ClusterError> {
        let Some(stored) = &self.map else {
            return Ok(());
        };
        let records = self.records.iter();
        release.check(
            stored.map.level,
            records.map(|(name, it)| (name, &it.record)),
        )
    }
}

/// The result of a transaction on the map.
#[derive(Debug)]
pub(super) enum PutMap {
    /// The store has the map.
    Done,
    /// The store has another map, or none.
    Conflict(Option<Box<StoredMap>>),
    /// The transaction was made or not.
    Unknown,
}

/// The reason why the store gives no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    #[error(transparent)]
    Store(#[from] CoordinationError),
    #[error("the coordination store: {0}")]
    Content(#[from] ClusterError),
}

impl From<StoreError> for ChangeError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Store(CoordinationError::Invalid(why)) => Self::Refused(why),
            other => Self::Store(other.to_string()),
        }
    }
}

/// The coordination store of a node.
#[derive(Debug)]
pub(super) struct Store {
    address: StoreAddress,
    state: RankedMutex<ClusterStore, StoreState>,
}

#[derive(Debug)]
struct StoreState {
    /// The handle; `None` until the first call, and after the store went backwards.
    handle: Option<Arc<dyn Coordinator>>,
    /// The newest position that an earlier handle has seen.
    seen: Option<StorePosition>,
    /// True if the store went backwards since the start of the process.
    went_backwards: bool,
    /// The last error; empty if the store is reachable.
    trouble: String,
}

impl Store {
    /// Creates the store. Nothing is opened yet. `seen` is the newest position that an earlier process has seen.
    pub(super) fn new(address: StoreAddress, seen: Option<StorePosition>) -> Self {
        Self {
            address,
            state: RankedMutex::new(StoreState {
                handle: None,
                seen,
                went_backwards: false,
                trouble: String::new(),
            }),
        }
    }

    /// Returns the handle, which is opened if there is none.
    pub(super) fn handle(&self) -> Result<Arc<dyn Coordinator>, CoordinationError> {
        let mut state = self.state.lock();
        if let Some(handle) = &state.handle {
            return Ok(handle.clone());
        }
        let handle = self.address.open(state.seen)?;
        state.handle = Some(handle.clone());
        Ok(handle)
    }

    /// Opens the store as one of which nothing was seen.
    fn reopen(&self) {
        let mut state = self.state.lock();
        (state.handle, state.seen, state.went_backwards) = (None, None, true);
    }

    /// Makes a call. A store that went backwards is opened again, and the call is made once more.
    fn call<T>(
        &self,
        call: impl Fn(&dyn Coordinator) -> Result<T, CoordinationError>,
    ) -> Result<T, CoordinationError> {
        let once = || call(&*self.handle()?);
        let mut done = once();
        if let Err(error @ CoordinationError::WentBackwards { .. }) = &done {
            tracing::error!(%error, "the coordination store is opened again");
            self.reopen();
            done = once();
        }
        match &done {
            Ok(_) | Err(CoordinationError::Conflict(_) | CoordinationError::Invalid(_)) => {
                self.note(None);
            }
            Err(error) => self.note(Some(error)),
        }
        done
    }

    /// Records whether the store is reachable, and logs a change.
    fn note(&self, error: Option<&CoordinationError>) {
        let trouble = error.map(ToString::to_string).unwrap_or_default();
        let was = std::mem::replace(&mut self.state.lock().trouble, trouble.clone());
        if was.is_empty() && !trouble.is_empty() {
            tracing::warn!(
                why = trouble,
                "the coordination store does not answer: the node continues with its map, and the cluster cannot be changed"
            );
        } else if !was.is_empty() && trouble.is_empty() {
            tracing::info!("the coordination store answers again");
        }
    }

    /// Returns whether several machines may share the store.
    pub(super) fn is_remote(&self) -> bool {
        self.address.is_remote()
    }

    /// Returns the state of the store, as of the last call. Never waits for the store.
    pub(super) fn status(&self) -> StoreStatus {
        let state = self.state.lock();
        StoreStatus {
            trouble: (!state.trouble.is_empty()).then(|| state.trouble.clone()),
            went_backwards: state.went_backwards,
            lease: LeaseStatus::default(),
        }
    }

    /// Returns the newest position that was seen.
    pub(super) fn seen(&self) -> Option<StorePosition> {
        let state = self.state.lock();
        let of_handle = state.handle.as_ref().and_then(|handle| handle.seen());
        of_handle.or(state.seen)
    }

    /// Reads the keys of a node.
    pub(super) fn read(&self, node: &str) -> Result<StoredState, StoreError> {
        let snapshot = self.call(|store| store.read(CALL_TIMEOUT))?;
        let entry = |key: &str| snapshot.entry(key);
        let record = entry(&record_key(node)).map(|it| NodeRecord::from_json(&it.value));
        Ok(StoredState {
            map: map_in(&snapshot)?,
            record: record.transpose()?,
            records: stored_records(&snapshot),
            has_run: entry(&alive_key(node)).is_some(),
            revision: snapshot.revision(),
        })
    }

    /// Reads all keys.
    pub(super) fn read_all(&self) -> Result<Snapshot, CoordinationError> {
        self.call(|store| store.read(CALL_TIMEOUT))
    }

    /// Reads the keys that begin with `prefix`.
    pub(super) fn read_prefix(&self, prefix: &str) -> Result<Snapshot, CoordinationError> {
        self.call(|store| store.read_prefix(prefix, CALL_TIMEOUT))
    }

    /// Makes a transaction.
    pub(super) fn transact(
        &self,
        transaction: &Transaction,
    ) -> Result<Revision, CoordinationError> {
        self.call(|store| store.transact(transaction, CALL_TIMEOUT))
    }

    /// Reads the map.
    pub(super) fn read_map(&self) -> Result<Option<StoredMap>, StoreError> {
        // There may be many other keys: those of the users.
        map_in(&self.read_prefix(MAP_KEY)?)
    }

    /// Watches the changes after a revision.
    pub(super) fn watch(&self, after: Revision) -> Result<Box<dyn Watch>, CoordinationError> {
        self.call(|store| store.watch(after))
    }

    /// Waits for the next event of a watch.
    pub(super) fn next(
        &self,
        watch: &mut dyn Watch,
        wait: Duration,
    ) -> Result<Option<kedge_coordination::WatchEvent>, CoordinationError> {
        let next = watch.next(wait);
        self.note(next.as_ref().err());
        next
    }

    /// Notes that a watch has found that the store went backwards.
    pub(super) fn has_gone_backwards(&self) {
        tracing::error!("the coordination store went backwards: it is opened again");
        self.reopen();
    }

    /// Puts the map, which has the id of its change, in place of the one of that revision; `None` if there is to be none yet.
    /// `with` has further compares and changes.
    pub(super) fn put_map(
        &self,
        based_on: Option<Revision>,
        map: &ClusterMap,
        with: &Transaction,
    ) -> Result<PutMap, StoreError> {
        assert!(!map.is_to_be_stamped(), "maps in the store have lineages");
        let put = with.clone().replace(MAP_KEY, based_on, map.to_json());
        match self.transact(&put) {
            Ok(_) => Ok(PutMap::Done),
            Err(CoordinationError::Conflict(conflict)) => {
                let present = conflict.entry(MAP_KEY).map(StoredMap::read);
                Ok(PutMap::Conflict(present.transpose()?.map(Box::new)))
            }
            Err(CoordinationError::OutcomeUnknown(_)) => Ok(PutMap::Unknown),
            Err(error) => Err(error.into()),
        }
    }

    /// Puts the secret, unless there is one, and returns the one in the store.
    pub(super) fn ensure_secret(&self, secret: ClusterSecret) -> Result<ClusterSecret, StoreError> {
        let put = Transaction::new()
            .when(Compare::Absent(SECRET_KEY.to_owned()))
            .put(SECRET_KEY, secret.to_json());
        let call = || self.call(|store| store.transact(&put, CALL_TIMEOUT));
        let done = match call() {
            // Made or not: now it is known.
            Err(CoordinationError::OutcomeUnknown(_)) => call(),
            done => done,
        };
        match done {
            Ok(_) => Ok(secret),
            Err(CoordinationError::Conflict(conflict)) => {
                let there = conflict.entry(SECRET_KEY).ok_or_else(|| {
                    CoordinationError::Damaged("the secret exists and has no entry".to_owned())
                })?;
                Ok(ClusterSecret::from_json(&there.value)?)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the records of all nodes, by name.
    pub(super) fn read_records(&self) -> Result<BTreeMap<String, NodeRecord>, StoreError> {
        let snapshot = self.read_prefix(RECORD_KEYS)?;
        let mut records = BTreeMap::new();
        for entry in snapshot.entries {
            if let Some(name) = entry.key.strip_prefix(RECORD_KEYS) {
                records.insert(name.to_owned(), NodeRecord::from_json(&entry.value)?);
            }
        }
        Ok(records)
    }

    /// Puts the record of a node, if the map is that of `state`.
    ///
    /// # Errors
    /// `Store` with `Conflict` when the map was changed.
    pub(super) fn put_record(
        &self,
        node: &str,
        record: &NodeRecord,
        state: &StoredState,
    ) -> Result<(), StoreError> {
        let based_on = state.map.as_ref().map(|stored| stored.revision);
        let put = record_put(node, record).when(Compare::since(MAP_KEY, based_on));
        self.call(|store| store.transact(&put, CALL_TIMEOUT))?;
        Ok(())
    }

    /// Deletes the record of a node.
    pub(super) fn delete_record(&self, node: &str) -> Result<(), StoreError> {
        let delete = Transaction::new().delete(record_key(node));
        self.call(|store| store.transact(&delete, CALL_TIMEOUT))?;
        Ok(())
    }
}

/// Returns whether the users are among the changes of a revision.
pub(super) fn has_users(changes: &[Change]) -> bool {
    let is_common = |key: &str| key.strip_prefix(USERS_KEYS) == Some(COMMON_DOCUMENT);
    changes.iter().any(|change| is_common(change.key()))
}

/// Returns the map among the changes of a revision; `Some(None)` if the key was deleted.
pub(super) fn map_of(changes: &[Change]) -> Result<Option<Option<StoredMap>>, ClusterError> {
    let of_map = changes.iter().find(|change| change.key() == MAP_KEY);
    Ok(match of_map {
        None => None,
        Some(Change::Delete(_)) => Some(None),
        Some(Change::Put(entry)) => Some(Some(StoredMap::read(entry)?)),
    })
}

#[cfg(test)]
mod tests {
    use kedge_coordination::TRANSACTION_BYTES_MAX;
    use kedge_types::limits::{BUCKET_NAME_BYTES_MAX, BUCKETS_MAX};
    use serde_json::json;

    use crate::cluster::testing;

    #[test]
    fn map_with_all_buckets_fits_into_one_transaction() {
        let names: Vec<String> = (0..16).map(|node| format!("node-{node}.example")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut map = testing::map(&names);
        for number in 0..BUCKETS_MAX {
            let name = format!("{number:0>width$}", width = BUCKET_NAME_BYTES_MAX);
            // The settings of a bucket take about a kilobyte.
            let settings = json!({ "uuid": "1b".repeat(16), "others": "x".repeat(1_000) });
            map.add_bucket(&name, settings, 1_024, 3).expect("a bucket");
        }
        let bytes = map.to_json().len();
        // The rest is for moves of a rebalance.
        let rest = TRANSACTION_BYTES_MAX - bytes;
        assert!(rest > 64 << 10, "{bytes}");
    }
}
