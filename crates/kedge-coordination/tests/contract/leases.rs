//! Leases and offices, on clocks that the tests advance: what a store contributes is its transactions.

use std::time::Duration;

use kedge_coordination::lease::{
    LeaseEvent, LeaseHolder, LeaseObserver, LeaseRecord, LeaseState, LeaseTiming, Office,
    OfficeStep,
};
use kedge_coordination::{
    Compare, CoordinationError, Coordinator, DriftBound, Moment, Transaction,
};
use serde_json::Value;

use super::{LONG, Store, value};

const KEY: &str = "alive/one";
const TIME: Duration = Duration::from_secs(5);

fn at(ms: u64) -> Moment {
    Moment::at_ns(0).plus(Duration::from_millis(ms))
}

fn holder(process: &str) -> LeaseHolder {
    let timing = LeaseTiming::new(TIME, None).expect("the inequality holds");
    LeaseHolder::new(KEY, process, timing).holding("the directory")
}

fn renew(store: &dyn Coordinator, holder: &mut LeaseHolder, ms: u64) -> LeaseEvent {
    let put = holder.put(at(ms), &Value::Null);
    let answer = store.transact(&put.expect("nobody has replaced it"), LONG);
    holder.on_answer(at(ms), &answer)
}

fn observe(store: &dyn Coordinator, observer: &mut LeaseObserver, ms: u64) -> LeaseState {
    let snapshot = store.read(LONG).expect("readable");
    observer.on_entry(at(ms), snapshot.entry(KEY));
    observer.state(at(ms))
}

/// The transaction that takes the place of a holder, if its lease has lapsed.
fn depose(observer: &LeaseObserver, ms: u64) -> Option<Transaction> {
    let lapsed = observer.deposition(at(ms), TIME)?;
    Some(
        Transaction::new()
            .when(lapsed)
            .delete(KEY)
            .put("map", "next"),
    )
}

pub(crate) fn holder_serves_while_it_renews(store: &dyn Store) {
    let handle = store.open();
    let mut holder = holder("a");
    assert_eq!(holder.serves_until(), Moment::default());
    assert_eq!(renew(&*handle, &mut holder, 1_000), LeaseEvent::Taken);
    assert_eq!(holder.serves_until(), at(1_000 + 4_995 - 500));
    assert_eq!(holder.next_put(), Some(at(2_250)));
    let since = holder.since();
    for ms in [2_250, 3_500] {
        assert_eq!(renew(&*handle, &mut holder, ms), LeaseEvent::Renewed);
        assert_eq!(holder.ends(), at(ms + 4_995));
    }
    assert_eq!(holder.since(), since);
    let record = value(&*handle, KEY).expect("it was put");
    let record = LeaseRecord::parse(&record).expect("a record");
    assert_eq!((record.counter, record.time()), (3, TIME));
}

pub(crate) fn lapsed_lease_is_deposed_unless_it_was_renewed(store: &dyn Store) {
    let handle = store.open();
    let (mut holder, other) = (holder("a"), store.open());
    let mut observer = LeaseObserver::new(KEY, DriftBound::default());
    renew(&*handle, &mut holder, 1_000);
    let state = observe(&*other, &mut observer, 2_000);
    assert_eq!(state, LeaseState::Held { until: at(7_005) });
    assert_eq!(depose(&observer, 7_004), None);
    // A renewal that the observer does not see.
    renew(&*handle, &mut holder, 5_000);
    let early = depose(&observer, 7_005).expect("it has lapsed");
    let error = other.transact(&early, LONG).expect_err("it was renewed");
    assert!(matches!(error, CoordinationError::Conflict(_)), "{error}");
    observe(&*other, &mut observer, 7_100);
    let deposed = depose(&observer, 12_105).expect("it has lapsed");
    assert!(holder.ends() < at(12_105));
    let revision = other.transact(&deposed, LONG).expect("it is unchanged");
    assert_eq!(
        renew(&*handle, &mut holder, 12_200),
        LeaseEvent::Deposed,
        "its record was deleted"
    );
    assert_eq!(holder.serves_until(), Moment::default());
    assert_eq!(renew(&*handle, &mut holder, 12_300), LeaseEvent::Taken);
    assert!(holder.since() > Some(revision), "it has to see the change");
}

pub(crate) fn revoked_lease_ends(store: &dyn Store) {
    let handle = store.open();
    let mut holder = holder("a");
    let mut observer = LeaseObserver::new(KEY, DriftBound::default());
    renew(&*handle, &mut holder, 1_000);
    let snapshot = handle.read(LONG).expect("readable");
    let revocation = LeaseRecord::revocation(snapshot.entry(KEY).expect("it was put"));
    handle.transact(&revocation, LONG).expect("it is unchanged");
    observe(&*handle, &mut observer, 2_000);
    assert_eq!(renew(&*handle, &mut holder, 2_250), LeaseEvent::Deposed);
    assert_eq!(holder.serves_until(), Moment::default());
    assert!(
        holder.next_put() > Some(at(7_005)),
        "time for who revoked it"
    );
    let deposed = depose(&observer, 7_005).expect("it has lapsed");
    handle.transact(&deposed, LONG).expect("it is unchanged");
}

fn token(step: OfficeStep) -> kedge_coordination::Revision {
    match step {
        OfficeStep::Hold { token } => token,
        other => panic!("it should be in office, not {other:?}"),
    }
}

/// The next step of a candidate that sees the store as it is.
fn step(store: &dyn Coordinator, office: &Office, end: Option<Compare>) -> OfficeStep {
    let snapshot = store.read(LONG).expect("readable");
    office.step(snapshot.entry("orchestrator"), |_| end)
}

fn take(store: &dyn Coordinator, office: &Office, end: Option<Compare>) {
    let OfficeStep::Take(taken) = step(store, office, end) else {
        panic!("the office is free");
    };
    store.transact(&taken, LONG).expect("nothing has changed");
}

pub(crate) fn office_is_handed_over(store: &dyn Store) {
    let (one, two) = (store.open(), store.open());
    let first = Office::new("orchestrator", "one", "a");
    let second = Office::new("orchestrator", "two", "b");
    take(&*one, &first, None);
    let held = token(step(&*one, &first, None));
    let OfficeStep::Wait(holder) = step(&*two, &second, None) else {
        panic!("someone is in office");
    };
    assert_eq!(
        (holder.node.as_str(), holder.process.as_str()),
        ("one", "a")
    );
    let change = Transaction::new().when(first.guard(held)).put("step", "1");
    one.transact(&change, LONG).expect("it is in office");
    let resigned = Transaction::new().when(first.guard(held));
    let resigned = resigned.delete("orchestrator");
    one.transact(&resigned, LONG).expect("it is in office");

    take(&*two, &second, None);
    let next = token(step(&*two, &second, None));
    assert!(next > held);
    let error = one.transact(&change, LONG).expect_err("it has resigned");
    assert!(matches!(error, CoordinationError::Conflict(_)), "{error}");
    let change = Transaction::new().when(second.guard(next)).put("step", "2");
    two.transact(&change, LONG).expect("it is in office");
}

pub(crate) fn office_of_a_dead_holder_is_taken_after_its_lease(store: &dyn Store) {
    let (one, two) = (store.open(), store.open());
    let first = Office::new("orchestrator", "one", "a");
    let second = Office::new("orchestrator", "two", "b");
    let mut dying = holder("a");
    renew(&*one, &mut dying, 1_000);
    take(&*one, &first, None);
    let held = token(step(&*one, &first, None));
    let mut observer = LeaseObserver::new(KEY, DriftBound::default());
    observe(&*two, &mut observer, 2_000);
    let alive = observer.end_of("a", at(7_004));
    assert!(matches!(step(&*two, &second, alive), OfficeStep::Wait(_)));
    let gone = observer.end_of("a", at(7_005));
    let OfficeStep::Take(taken) = step(&*two, &second, gone) else {
        panic!("the lease has lapsed");
    };
    // It was not: nobody may take the office from a holder that has renewed its lease.
    renew(&*one, &mut dying, 7_000);
    let error = two.transact(&taken, LONG).expect_err("it is alive");
    assert!(matches!(error, CoordinationError::Conflict(_)), "{error}");
    observe(&*two, &mut observer, 7_100);
    take(&*two, &second, observer.end_of("a", at(20_000)));
    let next = token(step(&*two, &second, None));
    assert!(next > held);
    let restarted = observer.end_of("another process", at(7_200));
    assert!(restarted.is_some(), "another process has the lease");
}
