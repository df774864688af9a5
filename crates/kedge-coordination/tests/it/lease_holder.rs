//! The holder of a lease: answers that are lost, late, or of other processes.

use std::time::Duration;

use kedge_coordination::lease::{LeaseEvent, LeaseHolder, LeaseRecord, LeaseTiming};
use kedge_coordination::{
    Compare, Conflict, CoordinationError, Entry, Moment, Op, Revision, Transaction,
};
use serde_json::Value;

const KEY: &str = "alive/one";

fn at(ms: u64) -> Moment {
    Moment::at_ns(0).plus(Duration::from_millis(ms))
}

fn timing(ms: u64) -> LeaseTiming {
    LeaseTiming::new(Duration::from_millis(ms), None).expect("the inequality holds")
}

/// A store with one key, whose revisions grow by ten.
#[derive(Default)]
struct OneKey {
    revision: u64,
    entry: Option<Entry>,
}

impl OneKey {
    fn transact(&mut self, transaction: &Transaction) -> Result<Revision, CoordinationError> {
        let holds = |compare: &Compare| match compare {
            Compare::Absent(_) => self.entry.is_none(),
            Compare::Unchanged(_, at) => self.entry.as_ref().map(|it| it.mod_revision) == Some(*at),
            Compare::Value(..) => false,
        };
        if !transaction.compares().iter().all(holds) {
            return Err(CoordinationError::Conflict(Conflict {
                revision: Revision(self.revision),
                present: vec![(KEY.to_owned(), self.entry.clone())],
            }));
        }
        self.revision += 10;
        let now = Revision(self.revision);
        for op in transaction.ops() {
            self.entry = match op {
                Op::Delete { .. } => None,
                Op::Put { key, value } => Some(Entry {
                    key: key.clone(),
                    value: value.clone(),
                    create_revision: self.entry.as_ref().map_or(now, |it| it.create_revision),
                    mod_revision: now,
                }),
            };
        }
        Ok(now)
    }

    fn delete(&mut self) -> Revision {
        let deleted = self.transact(&Transaction::new().delete(KEY));
        deleted.expect("nothing is compared")
    }
}

fn lost() -> Result<Revision, CoordinationError> {
    Err(CoordinationError::OutcomeUnknown("lost".to_owned()))
}

fn put(holder: &mut LeaseHolder, ms: u64) -> Transaction {
    let put = holder.put(at(ms), &Value::Null);
    put.expect("nobody has replaced it")
}

fn renew(store: &mut OneKey, holder: &mut LeaseHolder, ms: u64) -> LeaseEvent {
    let put = put(holder, ms);
    holder.on_answer(at(ms), &store.transact(&put))
}

/// The holder of a process that has the only data directory of its node.
fn holder(process: &str) -> LeaseHolder {
    LeaseHolder::new(KEY, process, timing(5_000)).holding("the directory")
}

fn held(store: &mut OneKey) -> LeaseHolder {
    let mut holder = holder("a");
    assert_eq!(renew(store, &mut holder, 0), LeaseEvent::Taken);
    holder
}

#[test]
fn renewal_whose_answer_was_lost_counts_once_its_record_is_seen() {
    let mut store = OneKey::default();
    let mut holder = held(&mut store);
    let made = put(&mut holder, 1_000);
    store.transact(&made).expect("it is unchanged");
    assert_eq!(holder.on_answer(at(2_000), &lost()), LeaseEvent::Unknown);
    assert_eq!(holder.ends(), at(4_995), "it is not known yet");
    assert!(
        holder.next_put() < Some(at(2_500)),
        "it is tried again soon"
    );
    let never_sent = put(&mut holder, 2_500);
    assert_eq!(holder.on_answer(at(3_500), &lost()), LeaseEvent::Unknown);
    assert_eq!(renew(&mut store, &mut holder, 3_600), LeaseEvent::Renewed);
    assert_eq!(holder.ends(), at(1_000 + 4_995), "that of the record");
    assert_eq!(holder.next_put(), Some(at(3_600)));
    assert_eq!(renew(&mut store, &mut holder, 3_700), LeaseEvent::Renewed);
    assert_eq!(holder.ends(), at(3_700 + 4_995));
    store.transact(&never_sent).expect_err("it comes too late");
}

#[test]
fn first_put_whose_answer_was_lost_begins_the_tenure() {
    let mut store = OneKey::default();
    let mut holder = holder("a");
    let made = put(&mut holder, 0);
    let first = store.transact(&made).expect("there is no record");
    holder.on_answer(at(1_000), &lost());
    assert_eq!(holder.serves_until(), Moment::default());
    assert_eq!(renew(&mut store, &mut holder, 1_500), LeaseEvent::Taken);
    assert_eq!((holder.since(), holder.ends()), (Some(first), at(4_995)));
}

/// Without the revision of its creation, the late record would look like that of a tenure that goes on.
#[test]
fn late_first_put_after_a_deposition_does_not_hide_it() {
    let mut store = OneKey::default();
    let mut holder = holder("a");
    let late = put(&mut holder, 0);
    holder.on_answer(at(1_000), &lost());
    assert_eq!(renew(&mut store, &mut holder, 1_500), LeaseEvent::Taken);
    let deposed = store.delete();
    store.transact(&late).expect("there is no record again");
    assert_eq!(renew(&mut store, &mut holder, 2_000), LeaseEvent::Deposed);
    assert_eq!(holder.serves_until(), Moment::default());
    assert_eq!(renew(&mut store, &mut holder, 2_100), LeaseEvent::Taken);
    assert!(holder.since() > Some(deposed));
}

#[test]
fn record_of_an_earlier_process_is_replaced_once() {
    let mut store = OneKey::default();
    held(&mut store);
    let mut next = holder("b");
    assert_eq!(renew(&mut store, &mut next, 1_000), LeaseEvent::Found);
    assert_eq!(next.next_put(), Some(at(1_000)));
    assert_eq!(renew(&mut store, &mut next, 1_000), LeaseEvent::Taken);
}

/// The process before may run on another machine, by promises of the other nodes.
#[test]
fn record_of_a_process_that_may_serve_is_not_replaced() {
    for lock in ["", "another directory"] {
        let mut store = OneKey::default();
        let mut first = held(&mut store);
        let mut second = LeaseHolder::new(KEY, "b", timing(5_000)).holding(lock);
        for ms in [1_000, 7_000] {
            assert_eq!(renew(&mut store, &mut second, ms), LeaseEvent::Occupied);
            assert!(second.next_put() > Some(at(ms)));
        }
        assert_eq!(second.occupant().expect("there is one").process, "a");
        assert_eq!(renew(&mut store, &mut first, 7_100), LeaseEvent::Renewed);
        assert_eq!(renew(&mut store, &mut second, 7_200), LeaseEvent::Occupied);
        // Whoever could have promised deletes the record.
        store.delete();
        assert_eq!(renew(&mut store, &mut second, 7_300), LeaseEvent::Taken);
        assert_eq!(second.occupant(), None);
        assert_eq!(renew(&mut store, &mut first, 7_400), LeaseEvent::Replaced);
    }
}

#[test]
fn lapsed_record_is_replaced_where_nobody_could_promise() {
    let mut store = OneKey::default();
    let mut first = held(&mut store);
    let mut second = LeaseHolder::new(KEY, "b", timing(5_000));
    renew(&mut store, &mut second, 1_000);
    renew(&mut store, &mut first, 2_000);
    assert_eq!(renew(&mut store, &mut second, 2_500), LeaseEvent::Occupied);
    // It was seen at 2,500.
    second.take_lapsed(at(7_504));
    assert_eq!(renew(&mut store, &mut second, 7_504), LeaseEvent::Occupied);
    assert!(first.ends() < at(7_505));
    second.take_lapsed(at(7_505));
    assert_eq!(second.next_put(), Some(at(7_505)));
    assert_eq!(renew(&mut store, &mut second, 7_505), LeaseEvent::Taken);
}

#[test]
fn holder_that_another_process_has_replaced_does_not_fight() {
    let mut store = OneKey::default();
    let mut first = held(&mut store);
    let mut second = holder("b");
    renew(&mut store, &mut second, 1_000);
    renew(&mut store, &mut second, 1_000);
    assert_eq!(renew(&mut store, &mut first, 1_250), LeaseEvent::Replaced);
    assert_eq!(first.serves_until(), Moment::default());
    assert_eq!(first.replaced_by(), Some("b"));
    assert_eq!(
        (first.put(at(2_000), &Value::Null), first.next_put()),
        (None, None)
    );
}

/// While the record with the shorter time may be there, observers may wait for no longer than that.
#[test]
fn shorter_lease_time_takes_effect_before_its_record_is_sent() {
    let mut store = OneKey::default();
    let mut holder = LeaseHolder::new(KEY, "a", timing(60_000));
    renew(&mut store, &mut holder, 0);
    assert_eq!(holder.ends(), at(59_940));
    holder.set_timing(timing(5_000));
    assert_eq!(holder.next_put(), Some(at(0)), "it is due at once");
    let shorter = put(&mut holder, 1_000);
    assert_eq!(holder.ends(), at(5_995));
    holder.on_answer(at(2_000), &lost());
    assert_eq!(holder.ends(), at(5_995), "either record may be there");
    store.transact(&shorter).expect("it is unchanged");
    renew(&mut store, &mut holder, 2_500);
    assert_eq!(holder.ends(), at(5_995));
    // A longer time counts when it is known to be there.
    holder.set_timing(timing(60_000));
    let longer = put(&mut holder, 3_000);
    assert_eq!(holder.ends(), at(5_995));
    let answer = store.transact(&longer);
    assert_eq!(holder.on_answer(at(3_100), &answer), LeaseEvent::Renewed);
    assert_eq!(holder.ends(), at(3_000 + 59_940));
}

#[test]
fn holder_forgets_its_tenure_in_a_store_that_was_restored() {
    let mut store = OneKey::default();
    let mut holder = held(&mut store);
    holder.forget();
    assert_eq!(
        (holder.serves_until(), holder.since()),
        (Moment::default(), None)
    );
    // The record is its own, of a state that the store had once.
    assert_eq!(renew(&mut store, &mut holder, 1_000), LeaseEvent::Taken);
    assert_eq!(
        holder.serves_until(),
        Moment::default(),
        "it was sent before"
    );
    assert_eq!(renew(&mut store, &mut holder, 1_000), LeaseEvent::Renewed);
    assert_eq!(holder.ends(), at(1_000 + 4_995));
}

/// A backup from before a restart of the node had the record of the earlier process, and the present one gave its lease up
/// for ever when that backup was restored.
#[test]
fn record_of_an_earlier_process_in_a_restored_store_is_replaced() {
    let mut store = OneKey::default();
    let mut earlier = held(&mut store);
    let mut holder = holder("b");
    assert_eq!(renew(&mut store, &mut holder, 0), LeaseEvent::Found);
    assert_eq!(renew(&mut store, &mut holder, 0), LeaseEvent::Taken);
    let mut backup = OneKey::default();
    earlier.forget();
    renew(&mut backup, &mut earlier, 0);
    holder.forget();
    assert_eq!(renew(&mut backup, &mut holder, 1_000), LeaseEvent::Found);
    assert_eq!(renew(&mut backup, &mut holder, 1_000), LeaseEvent::Taken);
    assert_eq!(holder.ends(), at(1_000 + 4_995));
}

#[test]
fn value_that_is_no_record_ends_a_tenure() {
    let mut store = OneKey::default();
    let mut holder = held(&mut store);
    let damaged = Transaction::new().put(KEY, "?");
    store.transact(&damaged).expect("nothing is compared");
    assert_eq!(renew(&mut store, &mut holder, 1_000), LeaseEvent::Replaced);
    let revoked = LeaseRecord::revocation(store.entry.as_ref().expect("it was put"));
    store.transact(&revoked).expect("it is unchanged");
}
