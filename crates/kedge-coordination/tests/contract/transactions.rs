//! Reads and transactions.

use std::thread;

use kedge_coordination::{
    Change, Compare, CoordinationError, Revision, TRANSACTION_BYTES_MAX, Transaction,
};

use super::{LONG, Store, increment, next_changes, number, put, value};

pub(crate) fn snapshot_has_all_keys_in_order(store: &dyn Store) {
    let handle = store.open();
    let empty = handle.read(LONG).expect("a new store can be read");
    assert_eq!(empty.entries, []);
    let made = Transaction::new()
        .put("b/2", "two")
        .put("a", "one")
        .put("b/1", [0, 255]);
    let revision = handle.transact(&made, LONG).expect("nothing is compared");
    assert!(revision > empty.revision());

    let snapshot = store.open().read(LONG).expect("readable");
    assert_eq!(snapshot.revision(), revision);
    assert_eq!(snapshot.position.store, empty.position.store);
    let keys: Vec<&str> = snapshot.entries.iter().map(|it| it.key.as_str()).collect();
    assert_eq!(keys, ["a", "b/1", "b/2"]);
    let entry = snapshot.entry("b/1").expect("it was put");
    assert_eq!(entry.value, [0, 255]);
    assert_eq!(
        (entry.create_revision, entry.mod_revision),
        (revision, revision)
    );
    let part = handle.read_prefix("b/", LONG).expect("readable");
    assert_eq!(part.position, snapshot.position);
    assert_eq!(part.entries, snapshot.entries[1..]);
    let one = handle.read_prefix("a", LONG).expect("readable");
    assert_eq!(one.entries, snapshot.entries[..1]);
    let none = handle.read_prefix("c", LONG).expect("readable");
    assert_eq!(none.entries, []);
}

pub(crate) fn transaction_is_made_as_a_whole_or_not(store: &dyn Store) {
    let handle = store.open();
    let first = put(&*handle, "a", "1");
    let both = |guard| Transaction::new().when(guard).put("a", "2").put("b", "2");
    let stale = both(Compare::Unchanged("a".to_owned(), Revision(first.0 + 1)));
    let error = handle
        .transact(&stale, LONG)
        .expect_err("a has another revision");
    assert!(matches!(error, CoordinationError::Conflict(_)), "{error}");
    assert_eq!(value(&*handle, "a").as_deref(), Some(&b"1"[..]));
    assert_eq!(value(&*handle, "b"), None);

    let guarded = both(Compare::Unchanged("a".to_owned(), first));
    let second = handle.transact(&guarded, LONG).expect("a is unchanged");
    let snapshot = handle.read(LONG).expect("readable");
    for key in ["a", "b"] {
        let entry = snapshot.entry(key).expect("both were put");
        assert_eq!(entry.mod_revision, second);
        assert_eq!(entry.value, b"2");
    }
    let replaced = Transaction::new().delete("a").put("c", "3");
    let third = handle
        .transact(&replaced, LONG)
        .expect("nothing is compared");
    assert_eq!(third.0, second.0 + 1);
    assert_eq!(value(&*handle, "a"), None);
    assert_eq!(value(&*handle, "c").as_deref(), Some(&b"3"[..]));
}

pub(crate) fn conflict_reports_present_values(store: &dyn Store) {
    let handle = store.open();
    let created = put(&*handle, "a", "1");
    let changed = put(&*handle, "a", "2");
    let key = || "a".to_owned();
    let fails = [
        Compare::Absent(key()),
        Compare::Unchanged(key(), created),
        Compare::Value(key(), b"1".to_vec()),
        Compare::Unchanged("none".to_owned(), created),
        Compare::Value("none".to_owned(), b"".to_vec()),
    ];
    for compare in fails {
        let text = format!("{compare:?}");
        let holding = Compare::Value(key(), b"2".to_vec());
        let transaction = Transaction::new().when(holding).when(compare).put("b", "x");
        let Err(CoordinationError::Conflict(conflict)) = handle.transact(&transaction, LONG) else {
            panic!("{text} does not hold");
        };
        assert_eq!(conflict.revision, changed, "{text}");
        let entry = conflict.entry("a").expect("it was compared");
        assert_eq!(
            (entry.value.as_slice(), entry.mod_revision),
            (&b"2"[..], changed)
        );
        assert_eq!(conflict.entry("none"), None);
    }
    let holds = [
        Compare::Unchanged(key(), changed),
        Compare::Value(key(), b"2".to_vec()),
        Compare::Absent("none".to_owned()),
    ];
    let transaction = holds
        .into_iter()
        .fold(Transaction::new(), Transaction::when);
    let revision = handle
        .transact(&transaction, LONG)
        .expect("all of them hold");
    assert_eq!(revision, changed, "nothing was changed");
}

pub(crate) fn deletion_of_a_missing_key_changes_nothing(store: &dyn Store) {
    let handle = store.open();
    let revision = put(&*handle, "a", "1");
    let delete = Transaction::new().delete("none");
    assert_eq!(
        handle.transact(&delete, LONG).expect("it is allowed"),
        revision
    );
    let mut watch = handle.watch(revision).expect("watched");
    let next = put(&*handle, "a", "2");
    assert_eq!(next.0, revision.0 + 1);
    let (seen, changes) = next_changes(&mut *watch);
    assert_eq!(seen, next);
    assert!(matches!(&changes[..], [Change::Put(entry)] if entry.key == "a"));
}

pub(crate) fn invalid_transactions_are_refused(store: &dyn Store) {
    let handle = store.open();
    let many = (0..200).fold(Transaction::new(), |it, n| it.put(format!("{n}"), ""));
    let invalid = [
        Transaction::new().put("", "1"),
        Transaction::new().put("k".repeat(600), "1"),
        Transaction::new().put("a", "1").delete("a"),
        Transaction::new().put("a", vec![0; TRANSACTION_BYTES_MAX]),
        many,
    ];
    for transaction in invalid {
        let error = handle
            .transact(&transaction, LONG)
            .expect_err("it is invalid");
        assert!(matches!(error, CoordinationError::Invalid(_)), "{error}");
    }
    let largest = Transaction::new().put("a", vec![7; TRANSACTION_BYTES_MAX - 1]);
    handle
        .transact(&largest, LONG)
        .expect("it has exactly the largest size");
}

pub(crate) fn concurrent_increments_lose_no_update(store: &dyn Store) {
    const THREADS: usize = 8;
    const EACH: usize = 12;
    let handle = store.open();
    let start = handle.read(LONG).expect("readable").revision();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let own = store.open();
                for _ in 0..EACH {
                    increment(&*own, "counter");
                }
            });
        }
    });
    let total = (THREADS * EACH) as u64;
    let snapshot = handle.read(LONG).expect("readable");
    assert_eq!(
        number(snapshot.entry("counter").expect("it was counted")),
        total
    );
    let mut watch = handle.watch(start).expect("watched");
    for expected in 1..=total {
        let (_, changes) = next_changes(&mut *watch);
        let [Change::Put(entry)] = &changes[..] else {
            panic!("one change at a time, not {changes:?}");
        };
        assert_eq!(number(entry), expected);
    }
}
