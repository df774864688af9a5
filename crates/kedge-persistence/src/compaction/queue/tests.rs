//! Tests of the compaction queue.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeSet, HashSet};

fn with_ticket() -> (QueuedCompaction, CompactionTicket) {
    let ticket = CompactionTicket::new(1);
    let request = QueuedCompaction {
        purge: PurgeOptions::default(),
        tickets: vec![ticket.clone()],
        is_automatic: false,
    };
    (request, ticket)
}

#[test]
fn cancel_automatic_spares_requested_compactions() {
    let is_automatic = || QueuedCompaction {
        is_automatic: true,
        ..QueuedCompaction::default()
    };
    let mut queue = CompactionQueue::default();
    queue.enqueue(VbId(1), is_automatic());
    queue.enqueue(VbId(2), with_ticket().0);
    queue.enqueue(VbId(3), is_automatic());
    queue.enqueue(VbId(4), is_automatic());
    queue.enqueue(VbId(4), with_ticket().0);
    let (one, two) = (queue.next(0, 2).unwrap(), queue.next(0, 2).unwrap());
    assert!(queue.has_automatic());
    assert_eq!(queue.cancel_automatic(), [VbId(1), VbId(3)]);
    let is_cancelled = |job: &CompactionJob| job.cancel.load(Ordering::Relaxed);
    assert!(is_cancelled(&one) && !is_cancelled(&two));
    assert_eq!(
        queue.vbuckets(),
        [(VbId(1), true), (VbId(2), true), (VbId(4), false)]
    );
    queue.end(VbId(1));
    assert!(!queue.has_automatic());
    assert_eq!(queue.next(0, 2).unwrap().vb, VbId(4));
}

#[test]
fn request_for_queued_vbucket_is_merged() {
    let mut queue = CompactionQueue::default();
    let purge = |secs, seqno, drop_deletes| PurgeOptions {
        purge_before_secs: secs,
        purge_before_seqno: seqno,
        drop_deletes,
    };
    let limited = purge(Some(10), Some(Seqno(100)), false);
    for purge in [limited, purge(Some(5), Some(Seqno(200)), true)] {
        queue.enqueue(
            VbId(1),
            QueuedCompaction {
                purge,
                tickets: vec![CompactionTicket::new(1)],
                is_automatic: false,
            },
        );
    }
    assert_eq!(queue.queued(), 1);
    let job = queue.next(0, 1).unwrap();
    assert_eq!(job.request.purge, purge(Some(10), Some(Seqno(200)), true));
    assert_eq!(job.request.tickets.len(), 2);
    assert_eq!(
        limited.union(PurgeOptions::default()).purge_before_seqno,
        None,
        "no limit exceeds every limit"
    );
}

#[test]
fn request_during_compaction_is_queued_for_another_one() {
    let mut queue = CompactionQueue::default();
    queue.enqueue(VbId(1), QueuedCompaction::default());
    let first = queue.next(0, 8).unwrap();
    queue.enqueue(VbId(1), with_ticket().0);
    assert!(queue.next(0, 8).is_none(), "one task for each vBucket");
    queue.end(first.vb);
    assert_eq!(queue.next(0, 8).unwrap().request.tickets.len(), 1);
    assert_eq!((queue.queued(), queue.running()), (0, 1));
    queue.end(VbId(1));
    assert_eq!(queue.vbuckets(), []);
}

#[test]
fn next_respects_the_limit_of_concurrent_compactions() {
    let mut queue = CompactionQueue::default();
    (0..5).for_each(|vb| queue.enqueue(VbId(vb), QueuedCompaction::default()));
    assert_eq!(queue.next(0, 2).unwrap().vb, VbId(0), "in order");
    assert_eq!(queue.next(0, 2).unwrap().vb, VbId(1));
    assert!(queue.next(0, 2).is_none());
    assert!(queue.next(0, 3).is_some(), "the limit may change");
    queue.end(VbId(0));
    assert!(queue.next(0, 2).is_none());
}

#[test]
fn retry_pause_doubles_and_delays_no_other_vbucket() {
    let mut queue = CompactionQueue::default();
    queue.enqueue(VbId(1), QueuedCompaction::default());
    let mut now_ns = 0;
    for expected_secs in [1, 2, 4, 8] {
        let job = queue.next(now_ns, 1).unwrap();
        let pause_ns = queue.retry(job.vb, job.request, now_ns, true);
        assert_eq!(pause_ns, expected_secs * RETRY_NS);
        assert_eq!(queue.next_retry_ns(now_ns), Some(now_ns + pause_ns));
        queue.enqueue(VbId(2), QueuedCompaction::default());
        let other = queue.next(now_ns, 1).unwrap();
        assert_eq!(other.vb, VbId(2), "others are not delayed");
        queue.end(VbId(2));
        queue.enqueue(VbId(1), QueuedCompaction::default());
        assert!(queue.next(now_ns + pause_ns - 1, 1).is_none());
        now_ns += pause_ns;
    }
    let job = queue.next(now_ns, 1).unwrap();
    queue.retry(job.vb, job.request, now_ns, true);
    queue.enqueue(VbId(1), with_ticket().0);
    assert!(
        queue.next(now_ns, 1).is_some(),
        "a request with a ticket skips the pause"
    );
    queue.end(VbId(1));
    queue.enqueue(VbId(1), QueuedCompaction::default());
    let job = queue.next(now_ns, 1).unwrap();
    let pause_ns = queue.retry(job.vb, job.request, now_ns, true);
    assert_eq!(pause_ns, RETRY_NS, "a success resets the pause");
}

#[test]
fn retry_pause_is_limited() {
    let mut queue = CompactionQueue::default();
    queue.enqueue(VbId(1), QueuedCompaction::default());
    let mut longest_ns = 0;
    for _ in 0..100 {
        let job = queue.next(u64::MAX, 1).unwrap();
        longest_ns = queue.retry(job.vb, job.request, 0, true);
    }
    assert_eq!(longest_ns, RETRY_NS_MAX);
}

#[test]
fn cancel_removes_queued_and_stops_running_compactions() {
    let mut queue = CompactionQueue::default();
    queue.enqueue(VbId(1), QueuedCompaction::default());
    let running = queue.next(0, 1).unwrap();
    queue.enqueue(VbId(1), with_ticket().0);
    queue.enqueue(VbId(2), with_ticket().0);
    let (tickets, any) = queue.cancel(VbId(1));
    assert!(any && tickets.len() == 1);
    assert!(running.cancel.load(Ordering::Relaxed));
    assert_eq!(queue.cancel(VbId(2)).0.len(), 1);
    assert!(!queue.cancel(VbId(2)).1);
    assert_eq!((queue.queued(), queue.running()), (0, 1));
    queue.end(VbId(1));
    assert_eq!(queue.vbuckets(), []);
}

#[derive(Clone, Debug)]
enum Step {
    Enqueue(u16, bool),
    Next(usize),
    End(usize),
    Retry(usize),
    Cancel(u16),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..4_u16, any::<bool>()).prop_map(|(vb, waits)| Step::Enqueue(vb, waits)),
        (1..4_usize).prop_map(Step::Next),
        any::<usize>().prop_map(Step::End),
        any::<usize>().prop_map(Step::Retry),
        (0..4_u16).prop_map(Step::Cancel),
        (0..3 * RETRY_NS).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 0..80)
}

proptest! {
    /// Compares the queue with a model of sets: no vBucket is compacted twice at a time, no limit is exceeded, and no
    /// ticket is lost or returned twice.
    #[test]
    fn queue_loses_no_ticket_and_runs_no_vbucket_twice(steps in steps()) {
        let mut queue = CompactionQueue::default();
        let mut running: Vec<CompactionJob> = Vec::new();
        let mut wanted: BTreeSet<VbId> = BTreeSet::new();
        let (mut given, mut back, mut now_ns) = (0, 0, 0);
        for step in steps {
            match step {
                Step::Enqueue(vb, waits) => {
                    let request = if waits { with_ticket().0 } else { QueuedCompaction::default() };
                    given += request.tickets.len();
                    queue.enqueue(VbId(vb), request);
                    wanted.insert(VbId(vb));
                }
                Step::Next(limit) => match queue.next(now_ns, limit) {
                    Some(job) => {
                        prop_assert!(running.len() < limit);
                        prop_assert!(wanted.remove(&job.vb));
                        prop_assert!(running.iter().all(|other| other.vb != job.vb));
                        running.push(job);
                    }
                    None => {
                        let free = wanted.iter().filter(|vb| {
                            running.iter().all(|job| job.vb != **vb)
                        });
                        let pauses = queue.next_retry_ns(now_ns).is_some();
                        prop_assert!(running.len() >= limit || pauses || free.count() == 0);
                    }
                },
                Step::End(n) | Step::Retry(n) if running.is_empty() => { let _ = n; }
                Step::End(n) => {
                    let job = running.swap_remove(n % running.len());
                    back += job.request.tickets.len();
                    queue.end(job.vb);
                }
                Step::Retry(n) => {
                    let job = running.swap_remove(n % running.len());
                    wanted.insert(job.vb);
                    queue.retry(job.vb, job.request, now_ns, n % 2 == 0);
                }
                Step::Cancel(vb) => {
                    back += queue.cancel(VbId(vb)).0.len();
                    wanted.remove(&VbId(vb));
                }
                Step::Pass(ns) => now_ns += ns,
            }
            let inside: HashSet<VbId> = queue.vbuckets().iter().map(|(vb, _)| *vb).collect();
            let expected: HashSet<VbId> =
                wanted.iter().copied().chain(running.iter().map(|job| job.vb)).collect();
            prop_assert_eq!(inside, expected);
            prop_assert_eq!((queue.queued(), queue.running()), (wanted.len(), running.len()));
        }
        while let Some(job) = queue.next(u64::MAX, usize::MAX) {
            back += job.request.tickets.len();
            running.push(CompactionJob { request: QueuedCompaction::default(), ..job });
        }
        for job in running {
            back += job.request.tickets.len();
            queue.end(job.vb);
            while let Some(job) = queue.next(u64::MAX, usize::MAX) {
                back += job.request.tickets.len();
                queue.end(job.vb);
            }
        }
        prop_assert_eq!(back, given);
        prop_assert_eq!(queue.vbuckets(), []);
    }
}
