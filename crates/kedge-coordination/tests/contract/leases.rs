//! Leases and elections.

use std::time::Duration;

use kedge_coordination::{
    Candidacy, Change, CoordinationError, Coordinator, Election, Entry, Leadership, Lease, LeaseId,
    Moment, Transaction, Watch,
};

use super::{LONG, Store, TTL, next_changes, put, value};

fn grant(store: &dyn Coordinator, ttl: Duration) -> Lease {
    let before = Moment::now();
    let lease = store.grant(ttl, LONG).expect("a lease is granted");
    assert!(lease.ttl >= ttl);
    assert!(lease.valid_until > before);
    assert!(
        lease.valid_until < Moment::now().plus(lease.ttl),
        "it counts from before the request"
    );
    lease
}

fn put_leased(store: &dyn Coordinator, key: &str, lease: LeaseId) {
    let transaction = Transaction::new().put_leased(key, "held", lease);
    store.transact(&transaction, LONG).expect("the lease lives");
}

fn wait_for_deletion(watch: &mut dyn Watch, key: &str) {
    loop {
        let (_, changes) = next_changes(watch);
        if changes.contains(&Change::Delete(key.to_owned())) {
            return;
        }
    }
}

pub(crate) fn unknown_lease_is_an_error(store: &dyn Store) {
    let handle = store.open();
    let lease = LeaseId(0x1234_5678);
    let transaction = Transaction::new().put("b", "1").put_leased("a", "1", lease);
    let errors = [
        handle.transact(&transaction, LONG).map(|_| ()),
        handle.keep_alive(lease, LONG).map(|_| ()),
        handle.revoke(lease, LONG),
    ];
    for error in errors {
        let error = error.expect_err("there is no such lease");
        assert!(
            matches!(error, CoordinationError::NoLease(it) if it == lease),
            "{error}"
        );
    }
    assert_eq!(value(&*handle, "b"), None);
}

pub(crate) fn revoked_lease_deletes_its_keys(store: &dyn Store) {
    let handle = store.open();
    let lease = grant(&*handle, Duration::from_secs(60));
    for key in ["a", "b", "kept"] {
        put_leased(&*handle, key, lease.id);
    }
    let held = handle.read(LONG).expect("readable");
    assert_eq!(held.entry("a").expect("it was put").lease, Some(lease.id));
    let start = put(&*handle, "kept", "without a lease");
    let mut watch = handle.watch(start).expect("watched");
    store.open().revoke(lease.id, LONG).expect("it lives");
    let (_, mut changes) = next_changes(&mut *watch);
    while changes.len() < 2 {
        changes.extend(next_changes(&mut *watch).1);
    }
    changes.sort_by(|a, b| a.key().cmp(b.key()));
    let deletions = ["a", "b"].map(|key| Change::Delete(key.to_owned()));
    assert_eq!(changes, deletions);
    let left = handle.read(LONG).expect("readable");
    assert_eq!(left.entries.len(), 1);
    assert_eq!(left.entries[0].lease, None);
    let error = handle
        .keep_alive(lease.id, LONG)
        .expect_err("it was revoked");
    assert!(matches!(error, CoordinationError::NoLease(_)), "{error}");
}

pub(crate) fn lease_expires_after_its_local_validity(store: &dyn Store) {
    let handle = store.open();
    let lease = grant(&*handle, TTL);
    put_leased(&*handle, "a", lease.id);
    let start = handle.read(LONG).expect("readable").revision();
    let mut watch = store.open().watch(start).expect("watched");
    wait_for_deletion(&mut *watch, "a");
    assert!(
        Moment::now() > lease.valid_until,
        "the holder's lease ends first"
    );
    assert_eq!(value(&*handle, "a"), None);
    let error = handle
        .keep_alive(lease.id, LONG)
        .expect_err("it has expired");
    assert!(matches!(error, CoordinationError::NoLease(_)), "{error}");
}

pub(crate) fn lease_lives_while_it_is_kept_alive(store: &dyn Store) {
    let handle = store.open();
    // Long enough that a busy machine does not miss it.
    let lease = grant(&*handle, 3 * TTL);
    put_leased(&*handle, "a", lease.id);
    let start = handle.read(LONG).expect("readable").revision();
    let mut watch = store.open().watch(start).expect("watched");
    let enough = lease.valid_until.plus(lease.ttl / 2);
    let mut valid_until = lease.valid_until;
    while Moment::now() < enough {
        let before = Moment::now();
        let renewed = handle.keep_alive(lease.id, LONG).expect("it lives");
        assert!(renewed >= valid_until, "a renewal does not shorten a lease");
        assert!(renewed > before && renewed < Moment::now().plus(lease.ttl));
        valid_until = renewed;
        // The watch is the clock of this loop: it returns nothing for as long.
        assert_eq!(watch.next(lease.ttl / 10).expect("watched"), None);
    }
    assert!(value(&*handle, "a").is_some());
    wait_for_deletion(&mut *watch, "a");
    assert!(Moment::now() > valid_until);
}

fn elected(candidacy: Result<Candidacy, CoordinationError>) -> Leadership {
    match candidacy.expect("the store can be reached") {
        Candidacy::Elected(leadership) => leadership,
        Candidacy::Held(entry) => panic!("nobody should hold the office, not {entry:?}"),
    }
}

fn held(candidacy: Result<Candidacy, CoordinationError>) -> Entry {
    match candidacy.expect("the store can be reached") {
        Candidacy::Held(entry) => entry,
        Candidacy::Elected(_) => panic!("someone holds the office"),
    }
}

pub(crate) fn office_is_handed_over(store: &dyn Store) {
    let (one, two) = (store.open(), store.open());
    let minute = Duration::from_secs(60);
    let leases = [grant(&*one, minute).id, grant(&*two, minute).id];
    let election = Election::new("orchestrator");
    let first = elected(election.stand(&*one, "one", leases[0], LONG));
    let again = elected(election.stand(&*one, "one", leases[0], LONG));
    assert_eq!(first, again, "an unknown outcome can be repeated");
    let holder = held(election.stand(&*two, "two", leases[1], LONG));
    assert_eq!(holder.value, b"one");
    let mut watch = two.watch(holder.mod_revision).expect("watched");

    let change = Transaction::new().when(first.guard()).put("step", "1");
    one.transact(&change, LONG).expect("it is in office");
    first.clone().resign(&*one, LONG).expect("it is in office");
    wait_for_deletion(&mut *watch, "orchestrator");
    let second = elected(election.stand(&*two, "two", leases[1], LONG));
    assert!(second.token > first.token);

    let late = Transaction::new().when(first.guard()).put("step", "2");
    let error = one.transact(&late, LONG).expect_err("it was deposed");
    assert!(matches!(error, CoordinationError::Conflict(_)), "{error}");
    first.resign(&*one, LONG).expect_err("it was deposed");
    let next = Transaction::new().when(second.guard()).put("step", "3");
    two.transact(&next, LONG).expect("it is in office");
}

pub(crate) fn office_of_a_dead_holder_is_free_after_its_lease(store: &dyn Store) {
    let (one, two) = (store.open(), store.open());
    let dying = grant(&*one, TTL);
    let living = grant(&*two, Duration::from_secs(60));
    let election = Election::new("orchestrator");
    let first = elected(election.stand(&*one, "one", dying.id, LONG));
    drop(one);
    let holder = held(election.stand(&*two, "two", living.id, LONG));
    let mut watch = two.watch(holder.mod_revision).expect("watched");
    wait_for_deletion(&mut *watch, "orchestrator");
    assert!(Moment::now() > dying.valid_until, "two leaders at a time");
    let second = elected(election.stand(&*two, "two", living.id, LONG));
    assert!(second.token > first.token);
}
