//! The contract of `Coordinator`, on the model of the store.

use crate::contract::{Store, contract};
use kedge_coordination::{
    CoordinationError, Coordinator, ReadAgain, Revision, Snapshot, StorePosition, Transaction,
    Watch, WatchEvent,
};
use kedge_sim::StoreModel;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A model that threads share: calls are executed at once.
#[derive(Debug)]
struct Shared {
    model: Mutex<StoreModel>,
    changed: Condvar,
}

impl Shared {
    fn model(&self) -> MutexGuard<'_, StoreModel> {
        self.model.lock().expect("no test panics in it")
    }
}

struct ModelStore(Arc<Shared>);

impl ModelStore {
    fn new() -> Self {
        Self(Arc::new(Shared {
            model: Mutex::new(StoreModel::new(7)),
            changed: Condvar::new(),
        }))
    }
}

impl Store for ModelStore {
    fn open_seen(&self, seen: Option<StorePosition>) -> Box<dyn Coordinator> {
        Box::new(ModelHandle {
            shared: Arc::clone(&self.0),
            seen: Arc::new(Mutex::new(seen)),
        })
    }

    fn forget_history(&self) {
        let mut model = self.0.model();
        let now = model.position().revision;
        model.compact(now);
    }
}

#[derive(Debug)]
struct ModelHandle {
    shared: Arc<Shared>,
    seen: Arc<Mutex<Option<StorePosition>>>,
}

/// Notes the position of an answer, which must not be older than `seen`.
fn observe(
    seen: &Mutex<Option<StorePosition>>,
    found: StorePosition,
) -> Result<(), CoordinationError> {
    let mut seen = seen.lock().expect("no test panics in it");
    match *seen {
        Some(seen) if seen.store != found.store || seen.revision > found.revision => {
            Err(CoordinationError::WentBackwards { seen, found })
        }
        _ => {
            *seen = Some(found);
            Ok(())
        }
    }
}

impl Coordinator for ModelHandle {
    fn read_prefix(&self, prefix: &str, _: Duration) -> Result<Snapshot, CoordinationError> {
        let model = self.shared.model();
        observe(&self.seen, model.position())?;
        let mut snapshot = model.read();
        snapshot.entries.retain(|it| it.key.starts_with(prefix));
        Ok(snapshot)
    }

    fn transact(
        &self,
        transaction: &Transaction,
        _: Duration,
    ) -> Result<Revision, CoordinationError> {
        let mut model = self.shared.model();
        observe(&self.seen, model.position())?;
        let done = model.transact(transaction);
        observe(&self.seen, model.position())?;
        self.shared.changed.notify_all();
        done
    }

    fn watch(&self, after: Revision) -> Result<Box<dyn Watch>, CoordinationError> {
        Ok(Box::new(ModelWatch {
            shared: Arc::clone(&self.shared),
            seen: Arc::clone(&self.seen),
            after,
            pending: VecDeque::new(),
        }))
    }

    fn seen(&self) -> Option<StorePosition> {
        *self.seen.lock().expect("no test panics in it")
    }
}

#[derive(Debug)]
struct ModelWatch {
    shared: Arc<Shared>,
    seen: Arc<Mutex<Option<StorePosition>>>,
    after: Revision,
    pending: VecDeque<WatchEvent>,
}

impl Watch for ModelWatch {
    fn next(&mut self, timeout: Duration) -> Result<Option<WatchEvent>, CoordinationError> {
        let deadline = Instant::now() + timeout;
        let mut model = self.shared.model();
        while self.pending.is_empty() {
            let now = model.position();
            if observe(&self.seen, now).is_err() || now.revision < self.after {
                return Ok(Some(WatchEvent::ReadAgain(ReadAgain::WentBackwards)));
            }
            let Some(events) = model.changes(self.after, now.revision) else {
                return Ok(Some(WatchEvent::ReadAgain(ReadAgain::Compacted)));
            };
            self.after = now.revision;
            self.pending.extend(events);
            let left = deadline.saturating_duration_since(Instant::now());
            if !self.pending.is_empty() || left.is_zero() {
                break;
            }
            let waited = self.shared.changed.wait_timeout(model, left);
            model = waited.expect("no test panics in it").0;
        }
        Ok(self.pending.pop_front())
    }
}

contract!(ModelStore::new());
