//! The contract of `Coordinator`, as functions that run against every implementation.

mod history;
mod leases;
mod transactions;

use std::time::Duration;

use kedge_coordination::{
    Compare, Conflict, CoordinationError, Coordinator, Entry, Revision, StorePosition, Transaction,
    Watch, WatchEvent,
};

pub(crate) use history::*;
pub(crate) use leases::*;
pub(crate) use transactions::*;

/// The longest time that a call may take on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// An empty store, of which handles can be opened.
pub(crate) trait Store: Sync {
    /// Opens another handle, which has seen that position.
    fn open_seen(&self, seen: Option<StorePosition>) -> Box<dyn Coordinator>;

    /// Makes the store forget the history before its present revision.
    fn forget_history(&self);

    fn open(&self) -> Box<dyn Coordinator> {
        self.open_seen(None)
    }
}

/// Defines a test for each function of the contract, which runs it on the store that `$make` returns.
macro_rules! contract {
    ($make:expr; $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                crate::contract::$name(&$make);
            }
        )*
    };
    ($make:expr) => {
        crate::contract::contract! { $make;
            snapshot_has_all_keys_in_order
            transaction_is_made_as_a_whole_or_not
            conflict_reports_present_values
            deletion_of_a_missing_key_changes_nothing
            invalid_transactions_are_refused
            concurrent_increments_lose_no_update
            watch_returns_each_revision_in_order
            watch_begins_at_a_past_revision
            watch_reports_that_history_is_gone
            store_that_went_backwards_is_refused
            holder_serves_while_it_renews
            lapsed_lease_is_deposed_unless_it_was_renewed
            revoked_lease_ends
            office_is_handed_over
            office_of_a_dead_holder_is_taken_after_its_lease
        }
    };
}
pub(crate) use contract;

pub(crate) fn put(store: &dyn Coordinator, key: &str, value: &str) -> Revision {
    let put = Transaction::new().put(key, value);
    store.transact(&put, LONG).expect("nothing is compared")
}

pub(crate) fn value(store: &dyn Coordinator, key: &str) -> Option<Vec<u8>> {
    let snapshot = store.read(LONG).expect("the store can be read");
    snapshot.entry(key).map(|entry| entry.value.clone())
}

/// The changes of the next revision.
pub(crate) fn next_changes(watch: &mut dyn Watch) -> (Revision, Vec<kedge_coordination::Change>) {
    match watch.next(LONG).expect("the store can be watched") {
        Some(WatchEvent::Changes { revision, changes }) => (revision, changes),
        other => panic!("a change was expected, not {other:?}"),
    }
}

/// Adds one to the number in a key, whatever others do, and returns the new number.
pub(crate) fn increment(store: &dyn Coordinator, key: &str) -> u64 {
    let mut entry = store.read(LONG).expect("readable").entry(key).cloned();
    loop {
        let (guard, number) = match &entry {
            None => (Compare::Absent(key.to_owned()), 0),
            Some(it) => (
                Compare::Unchanged(key.to_owned(), it.mod_revision),
                number(it),
            ),
        };
        let next = Transaction::new().when(guard);
        match store.transact(&next.put(key, (number + 1).to_string()), LONG) {
            Ok(_) => return number + 1,
            Err(CoordinationError::Conflict(conflict)) => entry = present(&conflict, key),
            Err(error) => panic!("{error}"),
        }
    }
}

fn present(conflict: &Conflict, key: &str) -> Option<Entry> {
    conflict.entry(key).cloned()
}

pub(crate) fn number(entry: &Entry) -> u64 {
    let text = std::str::from_utf8(&entry.value).expect("digits");
    text.parse().expect("a number")
}
