//! The contract on the embedded store, what only that store has: files, power failures, kills; and leases by themselves.

#[path = "../contract/mod.rs"]
mod contract;
mod crashes;
mod drifting_clock;
mod embedded;
mod lease_histories;
mod lease_holder;
mod lease_observer;
mod lease_promises;

use std::path::Path;

use kedge_coordination::embedded::{Embedded, EmbeddedOptions};
use kedge_coordination::{Coordinator, StorePosition};

use contract::Store;

/// An embedded store in a directory of its own.
pub(crate) struct EmbeddedStore {
    dir: tempfile::TempDir,
}

impl EmbeddedStore {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        EmbeddedStore { dir }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Store for EmbeddedStore {
    fn open_seen(&self, seen: Option<StorePosition>) -> Box<dyn Coordinator> {
        let options = EmbeddedOptions { seen };
        let store = Embedded::open(self.path(), options).expect("the directory exists");
        Box::new(store)
    }

    fn forget_history(&self) {
        let store = self.open();
        // More than the history keeps, in bytes.
        for _ in 0..3 {
            contract::put(&*store, "large", &"x".repeat(900_000));
        }
    }
}

mod embedded_contract {
    crate::contract::contract!(crate::EmbeddedStore::new());
}
