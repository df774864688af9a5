//! Members that are killed, paused, or away.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kedge_coordination::lease::{LeaseEvent, LeaseHolder, LeaseTiming};
use kedge_coordination::{
    Change, Compare, CoordinationError, Coordinator, Moment, ReadAgain, Revision, Transaction,
    Watch, WatchEvent,
};
use kedge_types::SystemClock;
use rustix::process::Signal;

use crate::contract::{LONG, next_changes, number, put, value};
use crate::servers::{Release, Servers, free_ports};
use crate::{admin, open};

/// The wait of a look at a watch that has to find nothing.
const SHORT: Duration = Duration::from_millis(250);

/// Waits until the members that are asked agree on a leader among them.
fn wait_for_leader(servers: &Servers, asked: &[usize]) -> usize {
    let deadline = Instant::now() + LONG;
    while Instant::now() < deadline {
        if let Some(leader) = admin::leader(servers, asked) {
            return leader;
        }
    }
    panic!("the members elect no leader");
}

/// Sets the counter to the number after `from`, if it is `from`; returns the number that it has then.
pub(crate) fn count_on(store: &dyn Coordinator, from: u64) -> u64 {
    let guard = match from {
        0 => Compare::Absent("counter".to_owned()),
        _ => Compare::Value("counter".to_owned(), from.to_string().into_bytes()),
    };
    let next = Transaction::new().when(guard);
    let next = next.put("counter", (from + 1).to_string());
    match store.transact(&next, LONG) {
        Ok(_) => from + 1,
        // Nobody else counts: the change with the unknown outcome was made.
        Err(CoordinationError::Conflict(conflict)) => {
            let found = conflict.entry("counter").map_or(0, number);
            assert_eq!(found, from + 1);
            found
        }
        Err(CoordinationError::OutcomeUnknown(_) | CoordinationError::Unreachable(_)) => from,
        Err(error) => panic!("{error}"),
    }
}

pub(crate) fn killed_leaders_lose_no_change(release: Release) {
    let mut servers = Servers::start(release, 3);
    let writer = open(servers.config(), None);
    let watcher = open(servers.config(), None);
    let start = watcher.read(LONG).expect("readable").revision();
    let mut watch = watcher.watch(start).expect("watched");
    let stop = AtomicBool::new(false);
    let total = thread::scope(|scope| {
        let counting = scope.spawn(|| {
            let mut counted = 0;
            while !stop.load(Ordering::Acquire) {
                counted = count_on(&writer, counted);
            }
            counted
        });
        let mut seen = 0;
        let mut expect_more = |watch: &mut dyn Watch, more: u64| {
            let until = seen + more;
            while seen < until {
                let deadline = Instant::now() + LONG;
                let event = loop {
                    match watch.next(LONG) {
                        Ok(Some(event)) => break event,
                        Ok(None) | Err(CoordinationError::Unreachable(_)) => {
                            assert!(Instant::now() < deadline, "nothing is counted");
                        }
                        Err(error) => panic!("{error}"),
                    }
                };
                let WatchEvent::Changes { changes, .. } = event else {
                    panic!("the history is there, not {event:?}");
                };
                let [Change::Put(entry)] = &changes[..] else {
                    panic!("only the counter changes, not {changes:?}");
                };
                seen += 1;
                assert_eq!(number(entry), seen, "each number once, in order");
            }
        };
        expect_more(&mut *watch, 10);
        for _ in 0..2 {
            let leader = wait_for_leader(&servers, &[0, 1, 2]);
            servers.kill(leader);
            expect_more(&mut *watch, 20);
            servers.start_member(leader);
            wait_for_leader(&servers, &[0, 1, 2]);
            expect_more(&mut *watch, 10);
        }
        stop.store(true, Ordering::Release);
        counting.join().expect("the writer ends")
    });
    let found = watcher.read(LONG).expect("readable");
    let found = number(found.entry("counter").expect("counted"));
    assert!(
        found == total || found == total + 1,
        "{total} were counted, {found} are there"
    );
}

/// A leader of etcd that is stopped delays renewals by the time of an election, and by no more.
pub(crate) fn paused_leader_does_not_end_a_lease_that_is_renewed(release: Release) {
    let servers = Servers::start(release, 3);
    let store = open(servers.config(), None);
    let clock = SystemClock::new();
    let now = || Moment::at_ns(clock.mono_ns());
    // Longer than elections take on a busy machine.
    let timing = LeaseTiming::new(LONG, None).expect("the inequality holds");
    let mut holder = LeaseHolder::new("alive/one", "a", timing);
    let mut renew = || {
        let put = holder.put(now(), &serde_json::Value::Null);
        let put = put.expect("nobody has replaced it");
        let answer = store.transact(&put, timing.request_timeout());
        let event = holder.on_answer(now(), &answer);
        (event, holder.serves_until())
    };
    let (event, mut serves_until) = renew();
    assert_eq!(event, LeaseEvent::Taken);
    let leader = wait_for_leader(&servers, &[0, 1, 2]);
    servers.signal(leader, Signal::STOP);
    let first = serves_until;
    while serves_until < first.plus(timing.time() / 2) {
        let event;
        (event, serves_until) = renew();
        assert!(
            matches!(event, LeaseEvent::Renewed | LeaseEvent::Unknown),
            "{event:?}"
        );
        assert!(now() < serves_until, "the lease was not renewed in time");
    }
    servers.signal(leader, Signal::CONT);
}

/// The next changes, whatever connections are lost before.
fn next_after_outages(watch: &mut dyn Watch) -> (Revision, Vec<Change>) {
    let deadline = Instant::now() + 2 * LONG;
    while Instant::now() < deadline {
        match watch.next(LONG) {
            Ok(Some(WatchEvent::Changes { revision, changes })) => return (revision, changes),
            Ok(None) | Err(CoordinationError::Unreachable(_)) => {}
            other => panic!("changes were expected, not {other:?}"),
        }
    }
    panic!("no changes after the outage");
}

pub(crate) fn store_without_a_quorum_is_unreachable(release: Release) {
    let mut servers = Servers::start(release, 3);
    let store = open(servers.config(), None);
    let revision = put(&store, "a", "1");
    let mut watch = store.watch(revision).expect("watched");
    servers.kill(0);
    servers.kill(1);
    let began = Instant::now();
    let wait = Duration::from_secs(2);
    let error = store.read(wait).expect_err("there is no quorum");
    assert!(
        matches!(error, CoordinationError::Unreachable(_)),
        "{error}"
    );
    assert!(
        began.elapsed() < wait + LONG / 2,
        "a call ends after its timeout"
    );
    let change = Transaction::new().put("a", "2");
    let error = store
        .transact(&change, wait)
        .expect_err("there is no quorum");
    let unknown = matches!(
        error,
        CoordinationError::Unreachable(_) | CoordinationError::OutcomeUnknown(_)
    );
    assert!(unknown, "{error}");
    servers.start_member(0);
    let revision = put(&store, "b", "3");
    // The refused change may have been made when the quorum was back.
    loop {
        let (found, changes) = next_after_outages(&mut *watch);
        if found == revision {
            break;
        }
        assert_eq!(changes[0].key(), "a");
    }
}

pub(crate) fn watch_resumes_after_a_restart_of_etcd(release: Release) {
    let mut servers = Servers::start(release, 1);
    let store = open(servers.config(), None);
    let revision = put(&store, "a", "1");
    let mut watch = store.watch(revision).expect("watched");
    let second = put(&store, "a", "2");
    assert_eq!(next_changes(&mut *watch).0, second);
    servers.kill(0);
    while watch.next(SHORT).is_ok_and(|event| event.is_none()) {}
    let error = watch.next(SHORT).expect_err("etcd is away");
    assert!(
        matches!(error, CoordinationError::Unreachable(_)),
        "{error}"
    );
    servers.start_member(0);
    let third = put(&store, "a", "3");
    let (found, _) = next_after_outages(&mut *watch);
    assert_eq!(found, third, "neither skipped nor repeated");
}

/// A member that is paused closes no connection: the watch has to notice that it does not answer.
pub(crate) fn watch_moves_on_from_a_paused_member(release: Release) {
    let servers = Servers::start(release, 3);
    let leader = wait_for_leader(&servers, &[0, 1, 2]);
    let paused = (leader + 1) % 3;
    let store = open(servers.config_of(&[leader]), None);
    let watcher = open(servers.config_of(&[paused, leader]), None);
    let revision = put(&store, "a", "1");
    let mut watch = watcher.watch(revision).expect("watched");
    let second = put(&store, "a", "2");
    assert_eq!(next_changes(&mut *watch).0, second);
    servers.signal(paused, Signal::STOP);
    let third = put(&store, "a", "3");
    loop {
        match watch.next(LONG) {
            Ok(Some(WatchEvent::Changes { revision, .. })) => {
                assert_eq!(revision, third);
                break;
            }
            Ok(None) | Err(CoordinationError::Unreachable(_)) => {}
            other => panic!("the change was expected, not {other:?}"),
        }
    }
    // Reads by the same client go to the other member, too.
    assert_eq!(value(&watcher, "a").as_deref(), Some(&b"3"[..]));
    servers.signal(paused, Signal::CONT);
}

pub(crate) fn watch_reports_a_compaction_while_it_was_disconnected(release: Release) {
    let mut servers = Servers::start(release, 1);
    let store = open(servers.config(), None);
    let revision = put(&store, "a", "1");
    let mut watch = store.watch(revision).expect("watched");
    let second = put(&store, "a", "2");
    assert_eq!(next_changes(&mut *watch).0, second);
    servers.kill(0);
    // For a while at an address that the watch does not know.
    let known = servers.members[0].client_port;
    servers.members[0].client_port = free_ports(1)[0];
    servers.start_member(0);
    let elsewhere = open(servers.config(), None);
    put(&elsewhere, "a", "3");
    let newest = put(&elsewhere, "a", "4");
    admin::compact(&servers, newest);
    servers.kill(0);
    servers.members[0].client_port = known;
    servers.start_member(0);
    loop {
        match watch.next(LONG) {
            Ok(Some(event)) => {
                assert_eq!(event, WatchEvent::ReadAgain(ReadAgain::Compacted));
                break;
            }
            Ok(None) | Err(CoordinationError::Unreachable(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(value(&store, "a").as_deref(), Some(&b"4"[..]));
}

/// gRPC clients refuse messages of more than 4 MiB, unless they are told otherwise.
pub(crate) fn large_answers_are_received(release: Release) {
    const VALUES: usize = 6;
    let servers = Servers::start(release, 1);
    let store = open(servers.config(), None);
    let start = store.read(LONG).expect("readable").revision();
    for n in 0..VALUES {
        put(&store, &format!("{n}"), &"x".repeat(900_000));
    }
    let snapshot = store.read(LONG).expect("readable");
    assert_eq!(snapshot.entries.len(), VALUES);
    let mut watch = store.watch(start).expect("watched");
    for _ in 0..VALUES {
        next_changes(&mut *watch);
    }
}
