//! Watches, and stores that went backwards.

use std::thread;
use std::time::Duration;

use kedge_coordination::{
    Change, CoordinationError, ReadAgain, Revision, StorePosition, Transaction, WatchEvent,
};

use super::{LONG, Store, next_changes, put, value};

pub(crate) fn watch_returns_each_revision_in_order(store: &dyn Store) {
    let handle = store.open();
    let start = handle.read(LONG).expect("readable").revision();
    let mut watch = handle.watch(start).expect("watched");
    assert_eq!(
        watch.next(Duration::ZERO).expect("nothing has changed"),
        None
    );
    let writer = store.open();
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..40 {
                let both = Transaction::new()
                    .put("a", format!("{round}"))
                    .put("b", "same");
                writer.transact(&both, LONG).expect("nothing is compared");
                let delete = Transaction::new().delete("b");
                writer.transact(&delete, LONG).expect("nothing is compared");
            }
        });
        let mut last = start;
        for round in 0..40 {
            let (revision, changes) = next_changes(&mut *watch);
            assert!(revision > last);
            last = revision;
            let [Change::Put(a), Change::Put(b)] = &changes[..] else {
                panic!("two puts were expected, not {changes:?}");
            };
            assert_eq!(
                (a.key.as_str(), a.value.as_slice()),
                ("a", format!("{round}").as_bytes())
            );
            assert_eq!((b.key.as_str(), b.mod_revision), ("b", revision));
            let (revision, changes) = next_changes(&mut *watch);
            assert_eq!(revision.0, last.0 + 1);
            last = revision;
            assert_eq!(changes, [Change::Delete("b".to_owned())]);
        }
    });
    let seen = handle.seen().map(|it| it.revision);
    assert!(seen >= Some(start));
}

pub(crate) fn watch_begins_at_a_past_revision(store: &dyn Store) {
    let handle = store.open();
    let revisions: Vec<Revision> = (0..10)
        .map(|n| put(&*handle, "a", &format!("{n}")))
        .collect();
    for (n, after) in revisions.iter().enumerate() {
        let mut watch = handle.watch(*after).expect("watched");
        for next in &revisions[n + 1..] {
            assert_eq!(next_changes(&mut *watch).0, *next);
        }
        assert_eq!(
            watch.next(Duration::from_millis(50)).expect("watched"),
            None
        );
    }
}

pub(crate) fn watch_reports_that_history_is_gone(store: &dyn Store) {
    let handle = store.open();
    let before = put(&*handle, "a", "1");
    put(&*handle, "a", "2");
    store.forget_history();
    let now = handle.read(LONG).expect("readable").revision();
    let mut watch = handle.watch(before).expect("watched");
    for _ in 0..2 {
        let event = watch.next(LONG).expect("watched");
        assert_eq!(event, Some(WatchEvent::ReadAgain(ReadAgain::Compacted)));
    }
    let mut watch = handle.watch(now).expect("watched");
    let next = put(&*handle, "a", "3");
    assert_eq!(next_changes(&mut *watch).0, next);
}

pub(crate) fn store_that_went_backwards_is_refused(store: &dyn Store) {
    let handle = store.open();
    let revision = put(&*handle, "a", "1");
    let seen = handle.seen().expect("it has seen the change");
    assert_eq!(seen.revision, revision);
    store
        .open_seen(Some(seen))
        .read(LONG)
        .expect("it is where it was");
    let later = StorePosition {
        revision: Revision(revision.0 + 1),
        ..seen
    };
    let other = StorePosition {
        store: seen.store ^ 1,
        revision: Revision(1),
    };
    for expected in [later, other] {
        let behind = store.open_seen(Some(expected));
        let mut watch = behind.watch(expected.revision).expect("not known yet");
        let event = watch.next(LONG).expect("the store can be reached");
        assert_eq!(event, Some(WatchEvent::ReadAgain(ReadAgain::WentBackwards)));
        for _ in 0..2 {
            let error = behind.transact(&Transaction::new().put("a", "2"), LONG);
            let error = error.expect_err("the handle has seen another state");
            assert!(
                matches!(error, CoordinationError::WentBackwards { .. }),
                "{error}"
            );
        }
        assert_eq!(behind.seen(), Some(expected));
    }
    // A caller that knows the revision from elsewhere, and whose handle has seen nothing.
    let fresh = store.open();
    let mut watch = fresh.watch(later.revision).expect("not known yet");
    let event = watch.next(LONG).expect("the store can be reached");
    assert_eq!(event, Some(WatchEvent::ReadAgain(ReadAgain::WentBackwards)));
    assert_eq!(value(&*handle, "a").as_deref(), Some(&b"1"[..]));
}
