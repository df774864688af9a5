//! How long tasks waited and ran, by kind.

use crate::kind::{Kind, MAX_KINDS, Pool};
use crate::{Priority, TaskId};
use histogram::AtomicHistogram;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// 32 steps for every power of two: a value is known to about 3 %.
const GROUPING_POWER: u8 = 5;
/// Values up to 2^40 us, twelve days.
const MAX_VALUE_POWER: u8 = 40;
/// Histograms of a kind: threads share one when there are more of them, and are in each other's way a little.
const STRIPES: usize = 4;
/// A kind whose runs take less than this on average is quick, in ns: one thread serves a queue of such tasks sooner
/// than another could be woken.
const QUICK_NS: u64 = 5_000;
/// Weight of one run in the average: 1/8.
const MEAN_SHIFT: u32 = 3;

/// Counts of values, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Number of values.
    pub count: u64,
    /// Lowest value, highest value, both included, and how many lie there; empty ones are left out.
    pub buckets: Vec<(u64, u64, u64)>,
}

#[derive(Debug)]
struct Stripe {
    queue_us: AtomicHistogram,
    run_us: AtomicHistogram,
    /// Average run time, in ns.
    mean_ns: AtomicU64,
}

impl Stripe {
    fn new() -> Self {
        let histogram = || {
            AtomicHistogram::new(GROUPING_POWER, MAX_VALUE_POWER)
                .expect("the constants fit each other")
        };
        Self {
            queue_us: histogram(),
            run_us: histogram(),
            mean_ns: AtomicU64::new(QUICK_NS),
        }
    }
}

/// What is known of a kind.
#[derive(Debug)]
pub(crate) struct KindStats {
    pub(crate) kind: &'static Kind,
    stripes: [OnceLock<Box<Stripe>>; STRIPES],
    /// Whether its runs are so short that waking another thread for one would take longer.
    quick: AtomicBool,
    pub(crate) panics: AtomicU64,
    pub(crate) slow: AtomicU64,
}

impl KindStats {
    pub(crate) fn new(kind: &'static Kind) -> Self {
        Self {
            kind,
            stripes: std::array::from_fn(|_| OnceLock::new()),
            quick: AtomicBool::new(false),
            panics: AtomicU64::new(0),
            slow: AtomicU64::new(0),
        }
    }

    pub(crate) fn record(&self, thread: usize, queue_ns: u64, run_ns: u64) {
        let stripe = self.stripes[thread % STRIPES].get_or_init(|| Box::new(Stripe::new()));
        let limit = (1 << MAX_VALUE_POWER) - 1;
        // The values fit, so the histograms take them.
        let _ = stripe.queue_us.increment((queue_ns / 1_000).min(limit));
        let _ = stripe.run_us.increment((run_ns / 1_000).min(limit));
        let mean_ns = stripe.mean_ns.load(Ordering::Relaxed);
        let mean_ns = mean_ns - (mean_ns >> MEAN_SHIFT) + (run_ns >> MEAN_SHIFT);
        stripe.mean_ns.store(mean_ns, Ordering::Relaxed);
        // Written when it changes only: others read it all the time.
        if self.is_quick() != (mean_ns < QUICK_NS) {
            self.quick.store(mean_ns < QUICK_NS, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_quick(&self) -> bool {
        self.quick.load(Ordering::Relaxed)
    }

    fn sum(&self, which: impl Fn(&Stripe) -> &AtomicHistogram) -> Histogram {
        let mut sum: Vec<(u64, u64, u64)> = Vec::new();
        for stripe in self.stripes.iter().filter_map(OnceLock::get) {
            for (at, bucket) in which(stripe).load().iter().enumerate() {
                if sum.len() <= at {
                    sum.push((bucket.start(), bucket.end(), 0));
                }
                sum[at].2 += bucket.count();
            }
        }
        sum.retain(|(_, _, count)| *count > 0);
        Histogram {
            count: sum.iter().map(|(_, _, count)| count).sum(),
            buckets: sum,
        }
    }

    pub(crate) fn info(&self) -> KindInfo {
        KindInfo {
            kind: self.kind,
            queue_time: self.sum(|stripe| &stripe.queue_us),
            run_time: self.sum(|stripe| &stripe.run_us),
            panics: self.panics.load(Ordering::Relaxed),
            slow: self.slow.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn reset(&self) {
        for stripe in self.stripes.iter().filter_map(OnceLock::get) {
            stripe.queue_us.drain();
            stripe.run_us.drain();
        }
        self.panics.store(0, Ordering::Relaxed);
        self.slow.store(0, Ordering::Relaxed);
    }
}

/// The kinds that an executor has seen, by [`Kind::index`].
#[derive(Debug)]
pub(crate) struct KindTable(Box<[OnceLock<KindStats>]>);

impl Default for KindTable {
    fn default() -> Self {
        Self((0..MAX_KINDS).map(|_| OnceLock::new()).collect())
    }
}

impl KindTable {
    pub(crate) fn enter(&self, kind: &'static Kind) -> (usize, &KindStats) {
        let index = kind.index();
        (index, self.0[index].get_or_init(|| KindStats::new(kind)))
    }

    pub(crate) fn get(&self, index: usize) -> &KindStats {
        self.0[index].get().expect("a task's kind was entered")
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &KindStats> {
        self.0.iter().filter_map(OnceLock::get)
    }
}

/// What there is to know of a kind.
#[derive(Clone, Debug)]
pub struct KindInfo {
    /// The kind.
    pub kind: &'static Kind,
    /// From being due to the beginning of the run, in us.
    pub queue_time: Histogram,
    /// From the beginning of the run to its end, in us.
    pub run_time: Histogram,
    /// Runs that panicked.
    pub panics: u64,
    /// Runs that took longer than expected.
    pub slow: u64,
}

/// What there is to know of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolInfo {
    /// The pool.
    pub pool: Pool,
    /// Threads it should have.
    pub threads: usize,
    /// Of those the ones that sleep, as there is nothing to do.
    pub idle: usize,
    /// Tasks that are due and wait for a thread.
    pub queued: usize,
}

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// It sleeps, until that long from now; None until it is woken.
    Snoozing(Option<Duration>),
    /// It is due and waits for a thread.
    Queued,
    /// It is on a thread.
    Running,
}

/// What there is to know of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskInfo {
    /// Its id.
    pub id: TaskId,
    /// Name of its owner.
    pub owner: String,
    /// Name of its kind.
    pub kind: &'static str,
    /// Its pool.
    pub pool: Pool,
    /// Its priority.
    pub priority: Priority,
    /// What it does.
    pub description: String,
    /// Where it is.
    pub state: TaskState,
    /// How often it began to run.
    pub runs: u32,
    /// How long its runs took together.
    pub run_time: Duration,
    /// How long the last run that ended took.
    pub last_run: Duration,
    /// How long it has been running; none when it does not run.
    pub runs_for: Option<Duration>,
}
