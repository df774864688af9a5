//! Members whose disks are slow: each sync takes as long as on a machine that is short of I/O.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kedge_coordination::lease::{LeaseEvent, LeaseHolder, LeaseTiming};
use kedge_coordination::{Change, Coordinator as _, Moment, WatchEvent};
use kedge_faulty_disk::{Call, Effect, Fault, in_namespaces};
use kedge_types::SystemClock;

use crate::contract::{LONG, number};
use crate::members::count_on;
use crate::open;
use crate::servers::{Release, Servers};

/// The time by which a sync takes longer.
const SYNC_TIME: Duration = Duration::from_millis(300);
/// The default time of a lease.
const LEASE_TIME: Duration = Duration::from_secs(5);
/// The number of renewals: several leases.
const RENEWALS: usize = 16;

/// Renewals are late by the syncs of etcd, and in time; changes are made, and a watch has all of them.
pub(crate) fn leases_are_renewed_while_the_disks_of_all_members_are_slow(release: Release) {
    let module = match release {
        Release::Debian => "debian",
        Release::Current => "current",
    };
    let name = "leases_are_renewed_while_the_disks_of_all_members_are_slow";
    if !in_namespaces(&format!("{module}::{name}")) {
        return;
    }
    let (servers, disks) = Servers::start_on_disks(release, 3);
    let slow = Fault {
        calls: &[Call::Sync],
        concerns: |_| true,
        effect: Effect::Delay(SYNC_TIME),
    };
    let _slow: Vec<_> = disks.iter().map(|disk| disk.fault(slow)).collect();
    let store = open(servers.config(), None);
    let writer = open(servers.config(), None);
    let start = store.read(LONG).expect("readable").revision();
    let mut watch = writer.watch(start).expect("watched");
    let stop = AtomicBool::new(false);
    let counted = thread::scope(|scope| {
        let counting = scope.spawn(|| {
            let mut counted = 0;
            while !stop.load(Ordering::Acquire) {
                counted = count_on(&writer, counted);
            }
            counted
        });
        let _stop = StopAtEnd(&stop);
        renew_in_time(&store);
        stop.store(true, Ordering::Release);
        counting.join().expect("no panic")
    });
    assert!(counted > 0, "nobody could write");
    for disk in &disks {
        assert!(disk.faulty_calls() > RENEWALS as u64, "the disk was slow");
    }
    let mut seen = 0;
    let deadline = Instant::now() + LONG;
    while seen < counted {
        assert!(Instant::now() < deadline, "{seen} of {counted} came");
        match watch.next(LONG).expect("the watch goes on") {
            Some(WatchEvent::Changes { changes, .. }) => {
                for change in &changes {
                    if let Change::Put(entry) = change
                        && entry.key == "counter"
                    {
                        seen += 1;
                        assert_eq!(number(entry), seen, "each number once, in order");
                    }
                }
            }
            other => assert_eq!(other, None),
        }
    }
}

/// Takes a lease and renews it as a node does, four times in its time.
fn renew_in_time(store: &kedge_coordination::etcd::Etcd) {
    let clock = SystemClock::new();
    let now = || Moment::at_ns(clock.mono_ns());
    let timing = LeaseTiming::new(LEASE_TIME, None).expect("the inequality holds");
    let mut holder = LeaseHolder::new("alive/one", "a", timing);
    let mut serves_until = None;
    for renewal in 0..RENEWALS {
        let began = now();
        let put = holder.put(began, &serde_json::Value::Null);
        let put = put.expect("nobody has replaced it");
        let answer = store.transact(&put, timing.request_timeout());
        let event = holder.on_answer(now(), &answer);
        let expected = match serves_until {
            None => LeaseEvent::Taken,
            Some(_) => LeaseEvent::Renewed,
        };
        assert_eq!(event, expected, "renewal {renewal}: {answer:?}");
        assert!(now().since(began) >= SYNC_TIME, "etcd has not synced");
        assert!(
            serves_until.is_none_or(|until| now() < until),
            "renewal {renewal} came too late"
        );
        serves_until = Some(holder.serves_until());
        // sleep: the interval of renewals
        thread::sleep((timing.time() / 4).saturating_sub(now().since(began)));
    }
}

/// Ends the writes.
struct StopAtEnd<'s>(&'s AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
