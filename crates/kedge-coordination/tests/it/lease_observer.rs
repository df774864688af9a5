//! The observer of a lease: when it has lapsed.

use std::time::Duration;

use kedge_coordination::lease::{LeaseObserver, LeaseState};
use kedge_coordination::{Compare, DriftBound, Entry, Moment, Revision};

/// The time of a lease whose record may be lost.
const LOST: Duration = Duration::from_secs(5);

fn at(ms: u64) -> Moment {
    Moment::at_ns(0).plus(Duration::from_millis(ms))
}

fn entry(revision: u64, process: &str, lease_ms: u64) -> Entry {
    let value = format!(
        r#"{{"version":1,"process":"{process}","counter":{revision},"lease_ms":{lease_ms}}}"#
    );
    Entry {
        key: "alive/one".to_owned(),
        value: value.into_bytes(),
        create_revision: Revision(1),
        mod_revision: Revision(revision),
    }
}

fn observer() -> LeaseObserver {
    LeaseObserver::new("alive/one", DriftBound::default())
}

#[test]
fn time_counts_from_when_a_change_was_seen() {
    let mut observer = observer();
    assert_eq!(observer.state(at(0)), LeaseState::Unknown);
    observer.on_entry(at(1_000), Some(&entry(7, "a", 5_000)));
    for ms in [1_000, 6_004] {
        // Looking again changes nothing.
        observer.on_entry(at(ms), Some(&entry(7, "a", 5_000)));
        let held = LeaseState::Held { until: at(6_005) };
        assert_eq!(observer.state(at(ms)), held);
        assert_eq!(observer.deposition(at(ms), LOST), None);
    }
    let lapsed = LeaseState::Lapsed { at: at(6_005) };
    assert_eq!(observer.state(at(6_005)), lapsed);
    let unchanged = Compare::Unchanged("alive/one".to_owned(), Revision(7));
    assert_eq!(observer.deposition(at(6_005), LOST), Some(unchanged));
    // The record says for how long it is.
    observer.on_entry(at(7_000), Some(&entry(8, "a", 1_000)));
    assert_eq!(
        observer.state(at(7_000)),
        LeaseState::Held { until: at(8_001) }
    );
}

/// A restored store had lost the record of a node that served, and the node counted as one that serves nothing.
#[test]
fn absent_record_has_the_time_of_a_lease_from_when_it_was_seen_to_be_absent() {
    let mut observer = observer();
    observer.on_entry(at(0), Some(&entry(7, "a", 5_000)));
    for ms in [1_000, 2_000] {
        // Looking again changes nothing.
        observer.on_entry(at(ms), None);
        let absent = LeaseState::Absent { since: at(1_000) };
        assert_eq!(observer.state(at(ms)), absent);
    }
    let absent = Compare::Absent("alive/one".to_owned());
    assert_eq!(observer.deposition(at(6_004), LOST), None);
    assert_eq!(observer.deposition(at(6_005), LOST), Some(absent.clone()));
    // An office needs no time: its compare is enough.
    assert_eq!(observer.end_of("a", at(1_000)), Some(absent.clone()));
    // It may have been renewed, and lost again.
    observer.on_interruption();
    assert_eq!(observer.deposition(at(9_000), LOST), None);
    observer.on_entry(at(10_000), None);
    assert_eq!(observer.deposition(at(15_004), LOST), None);
    assert_eq!(observer.deposition(at(15_005), LOST), Some(absent));
}

#[test]
fn outage_of_the_store_starts_the_time_again() {
    let mut observer = observer();
    observer.on_entry(at(0), Some(&entry(7, "a", 5_000)));
    observer.on_interruption();
    assert_eq!(observer.state(at(60_000)), LeaseState::Unknown);
    assert_eq!(observer.deposition(at(60_000), LOST), None);
    assert_eq!(observer.end_of("b", at(60_000)), None);
    observer.on_entry(at(60_000), Some(&entry(7, "a", 5_000)));
    let held = LeaseState::Held { until: at(65_005) };
    assert_eq!(observer.state(at(60_000)), held);
}

#[test]
fn record_that_cannot_be_read_is_given_the_longest_time() {
    let mut observer = observer();
    let unreadable = Entry {
        value: b"?".to_vec(),
        ..entry(7, "a", 1)
    };
    observer.on_entry(at(0), Some(&unreadable));
    let held = LeaseState::Held { until: at(120_120) };
    assert_eq!(observer.state(at(0)), held);
}

#[test]
fn lease_of_another_process_ends_what_the_first_one_held() {
    let mut observer = observer();
    observer.on_entry(at(0), Some(&entry(7, "a", 5_000)));
    assert_eq!(observer.end_of("a", at(1)), None);
    let unchanged = Compare::Unchanged("alive/one".to_owned(), Revision(7));
    assert_eq!(observer.end_of("b", at(1)), Some(unchanged.clone()));
    assert_eq!(observer.end_of("a", at(5_005)), Some(unchanged));
}
