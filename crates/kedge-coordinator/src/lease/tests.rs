//! A node's lease in an embedded store, on the system's clock.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kedge_coordination::embedded::{Embedded, EmbeddedOptions};
use kedge_coordination::lease::{LeaseHolder, LeaseRecord};
use kedge_coordination::{Compare, Moment, Transaction};
use kedge_disk::SimDisk;
use kedge_node::coordination::ServesBy;

use super::*;

/// The deadline of waits. It is generous: a test that reaches it has failed.
const DEADLINE: Duration = Duration::from_secs(60);
const CALL: Duration = Duration::from_secs(20);

fn until(what: &str, mut happens: impl FnMut() -> bool) {
    let began = Instant::now();
    while !happens() {
        assert!(began.elapsed() < DEADLINE, "{what}");
        std::thread::yield_now();
    }
}

/// The parts of a node that the test controls.
#[derive(Default)]
struct Node {
    serving: Arc<ServingGate>,
    /// The revision of the applied map.
    applied: AtomicI64,
    is_cut_off: AtomicBool,
    /// The other nodes, and whether each promises.
    others: std::sync::Mutex<Vec<(String, bool)>>,
    /// The number of requests to release the lease of another process. They are refused.
    releases: AtomicU64,
    awaited: AtomicU64,
    handle: std::sync::Mutex<Option<Arc<dyn Coordinator>>>,
}

struct Running {
    node: Arc<Node>,
    store: Arc<Embedded>,
    lease: Arc<NodeLease>,
}

fn open(disk: &SimDisk) -> Arc<Embedded> {
    let dir = std::path::Path::new("/store");
    let options = EmbeddedOptions::default();
    let opened = Embedded::open_on(Arc::new(disk.clone()), dir, options);
    Arc::new(opened.expect("the disk works"))
}

fn put_map(store: &Embedded, rev: i64) {
    let put = Transaction::new().put("map", rev.to_string());
    store.transact(&put, CALL).expect("nothing is compared");
}

fn revision(rev: i64) -> Revision {
    Revision { epoch: 1, rev }
}

impl Running {
    /// A node with a lease of `ms`, in a store with the map 1, which it has not applied.
    fn start(disk: &SimDisk, ms: u64) -> Self {
        Self::start_in(open(disk), ms)
    }

    fn start_in(store: Arc<Embedded>, ms: u64) -> Self {
        put_map(&store, 1);
        let node = Arc::new(Node::default());
        *node.handle.lock().expect("no panic") = Some(store.clone());
        let timing = LeaseTiming::new(Duration::from_millis(ms), None);
        let (given, shown, steps) = (node.clone(), node.clone(), node.clone());
        let (members, promisers, releasers) = (node.clone(), node.clone(), node.clone());
        // It has another member, unless the test says otherwise.
        *node.others.lock().expect("no panic") = vec![("two".to_owned(), false)];
        let lease = NodeLease::start(LeaseSetup {
            node: "one".to_owned(),
            process: "a".to_owned(),
            lock: "the lock of a".to_owned(),
            timing: timing.expect("the inequality holds"),
            // A busy machine may pause a test for long.
            watchdog: false,
            store: Box::new(move || {
                let unreachable = || CoordinationError::Unreachable("cut off".to_owned());
                if given.is_cut_off.load(Ordering::SeqCst) {
                    return Err(unreachable());
                }
                let handle = given.handle.lock().expect("no panic");
                handle.clone().ok_or_else(unreachable)
            }),
            stored_map: Box::new(|snapshot| {
                let text = String::from_utf8(snapshot.entry("map")?.value.clone());
                Some(revision(text.ok()?.parse().ok()?))
            }),
            applied: Box::new(move || {
                let rev = shown.applied.load(Ordering::SeqCst);
                (rev > 0).then(|| revision(rev))
            }),
            others: Box::new(move || {
                let others = members.others.lock().expect("no panic");
                Some(others.iter().map(|(name, _)| name.clone()).collect())
            }),
            ask: Arc::new(move |_, _| {
                let others = promisers.others.lock().expect("no panic");
                let promised = others.iter().filter(|(_, promises)| *promises);
                promised.map(|(name, _)| name.clone()).collect()
            }),
            release: Box::new(move || {
                releasers.releases.fetch_add(1, Ordering::SeqCst);
                Err("it may serve".to_owned())
            }),
            health: Box::new(|| Value::Null),
            serving: node.serving.clone(),
            await_steps: Box::new(move || {
                steps.awaited.fetch_add(1, Ordering::SeqCst);
            }),
            clock: Arc::new(SystemClock::new()),
        })
        .expect("the system has a thread and a timer");
        Running { node, store, lease }
    }

    fn apply(&self, rev: i64) {
        self.node.applied.store(rev, Ordering::SeqCst);
    }

    fn serves(&self) -> bool {
        let now_ns = SystemClock::new().mono_ns();
        self.node.serving.is_open(now_ns)
    }

    /// Waits until the thread has renewed the lease twice, and checks that the node has not served meanwhile.
    fn does_not_serve(&self) {
        let before = self.lease.status().renewals;
        until("it renews", || {
            assert!(!self.serves());
            self.lease.status().renewals >= before + 2
        });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.lease.stop();
        until("it stops", || self.node.serving.until_ns() == 0);
    }
}

#[test]
fn node_serves_with_the_map_that_its_tenure_needs() {
    let running = Running::start(&SimDisk::new(1), 1_000);
    running.does_not_serve();
    running.apply(1);
    until("it serves", || running.serves());
}

/// A store with the lease of another process of the same name, which has not renewed it since.
fn occupied(seed: u64, lock: &str) -> Arc<Embedded> {
    let store = open(&SimDisk::new(seed));
    let timing = LeaseTiming::new(Duration::from_secs(1), None);
    let timing = timing.expect("the inequality holds");
    let mut other = LeaseHolder::new("alive/one", "b", timing).holding(lock);
    let put = other.put(Moment::at_ns(0), &Value::Null);
    let put = put.expect("nobody has replaced it");
    store.transact(&put, CALL).expect("there is no record");
    store
}

#[test]
fn process_with_the_same_lock_has_ended() {
    let running = Running::start_in(occupied(8, "the lock of a"), 1_000);
    running.apply(1);
    until("it serves", || running.serves());
    assert_eq!(running.node.releases.load(Ordering::SeqCst), 0);
}

/// It may serve by promises of the others for as long as they repeat them.
#[test]
fn process_that_may_serve_keeps_the_lease_until_another_member_deletes_it() {
    let running = Running::start_in(occupied(9, "another lock"), 1_000);
    running.apply(1);
    until("others are asked", || {
        assert!(!running.serves());
        running.node.releases.load(Ordering::SeqCst) >= 5
    });
    let trouble = running.lease.status().trouble.unwrap_or_default();
    assert!(
        trouble.contains("process b may serve as this node: it may serve"),
        "{trouble}"
    );
    let delete = Transaction::new().delete("alive/one");
    let deleted = running.store.transact(&delete, CALL);
    deleted.expect("nothing is compared");
    until("it serves", || running.serves());
}

#[test]
fn only_member_takes_a_lease_that_has_lapsed() {
    let store = occupied(10, "another lock");
    let running = Running::start_in(store, 1_000);
    running.node.others.lock().expect("no panic").clear();
    running.apply(1);
    until("it serves", || running.serves());
    assert!(running.lease.status().failures > 0, "it has waited");
}

#[test]
fn node_that_cannot_renew_stops_in_time_and_serves_again() {
    let running = Running::start(&SimDisk::new(2), 1_000);
    running.apply(1);
    until("it serves", || running.serves());
    running.node.is_cut_off.store(true, Ordering::SeqCst);
    until("its lease is over", || running.lease.status().lapses == 1);
    assert!(!running.serves());
    assert_eq!(
        running.node.serving.until_ns(),
        0,
        "steps with an earlier time are refused, too"
    );
    assert_eq!(running.node.awaited.load(Ordering::SeqCst), 1);
    let status = running.lease.status();
    assert!(
        !status.serves
            && status
                .trouble
                .as_deref()
                .is_some_and(|it| it.contains("cut off")),
        "{status:?}"
    );
    running.node.is_cut_off.store(false, Ordering::SeqCst);
    until("it serves again", || running.serves());
}

#[test]
fn deposed_node_waits_for_the_map_that_deposed_it() {
    let running = Running::start(&SimDisk::new(3), 1_000);
    running.apply(1);
    until("it serves", || running.serves());
    running.node.is_cut_off.store(true, Ordering::SeqCst);
    until("its lease is over", || !running.serves());
    let snapshot = running.store.read(CALL).expect("readable");
    let record = snapshot.entry("alive/one").expect("it was put");
    let lapsed = Compare::Unchanged("alive/one".to_owned(), record.mod_revision);
    let deposed = Transaction::new().when(lapsed).delete("alive/one");
    let deposed = deposed.put("map", "2");
    running
        .store
        .transact(&deposed, CALL)
        .expect("it is unchanged");
    running.node.is_cut_off.store(false, Ordering::SeqCst);
    running.does_not_serve();
    running.apply(2);
    until("it serves", || running.serves());
}

/// The map of this node is newer than that of the store: others may have been promoted by it.
#[test]
fn restored_store_gets_the_newer_map_before_the_node_serves() {
    let running = Running::start(&SimDisk::new(4), 1_000);
    put_map(&running.store, 2);
    running.apply(2);
    until("it serves", || running.serves());
    let restored = open(&SimDisk::new(5));
    put_map(&restored, 1);
    *running.node.handle.lock().expect("no panic") = Some(restored.clone());
    until("it notices", || running.lease.status().lapses == 1);
    running.does_not_serve();
    put_map(&restored, 2);
    until("it serves", || running.serves());
}

#[test]
fn node_serves_by_the_promises_of_all_others_while_the_store_is_unreachable() {
    let running = Running::start(&SimDisk::new(6), 1_000);
    let promises = |two: bool, three: bool| {
        let others = [("two", two), ("three", three)];
        *running.node.others.lock().expect("no panic") = others
            .map(|(name, promises)| (name.to_owned(), promises))
            .into();
    };
    let by = || running.lease.status().serves_by;
    promises(true, true);
    running.apply(1);
    until("it serves", || running.serves());
    assert_eq!(by(), ServesBy::Lease);
    running.node.is_cut_off.store(true, Ordering::SeqCst);
    until("its lease is over", || by() == ServesBy::Promises);
    let asked = running.lease.status().promised;
    until("they promise again", || {
        running.lease.status().promised >= asked + 5
    });
    // A round that a busy machine delays may end later than the promises before.
    until("it serves", || running.serves());
    promises(true, false);
    until("the promises are over", || by() == ServesBy::None);
    assert!(!running.serves());
    let trouble = running.lease.status().trouble.unwrap_or_default();
    assert!(trouble.contains("no promise of three"), "{trouble}");
    promises(true, true);
    until("it serves again", || running.serves());
    running.node.is_cut_off.store(false, Ordering::SeqCst);
    until("it renews", || by() == ServesBy::Lease);
}

/// The transaction that deposed it was made by a node that has promised nothing.
#[test]
fn deposed_node_does_not_serve_by_promises() {
    let running = Running::start(&SimDisk::new(7), 1_000);
    running.apply(1);
    until("it serves", || running.serves());
    let snapshot = running.store.read(CALL).expect("readable");
    let record = snapshot.entry("alive/one").expect("it was put");
    let revoked = LeaseRecord::revocation(record);
    if running.store.transact(&revoked, CALL).is_err() {
        // It was renewed at the same time.
        return;
    }
    until("it notices", || running.lease.status().lapses == 1);
    running.node.is_cut_off.store(true, Ordering::SeqCst);
    *running.node.others.lock().expect("no panic") = vec![("two".to_owned(), true)];
    let before = running.lease.status().failures;
    until("it cannot renew", || {
        assert!(!running.serves());
        running.lease.status().failures >= before + 2
    });
}
