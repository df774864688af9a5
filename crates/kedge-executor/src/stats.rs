//! Queue times and run times, by task kind.

use crate::kind::{MAX_KINDS, Pool, TaskKind};
use crate::{Priority, TaskId};
use histogram::AtomicHistogram;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Resolution of the histograms: 32 buckets per power of two, an error of about 3 %.
const GROUPING_POWER: u8 = 5;
/// Largest value of the histograms: 2^40 us, or twelve days.
const MAX_VALUE_POWER: u8 = 40;
/// Number of histograms per kind. More threads than that share histograms, with a little contention.
const STRIPES: usize = 4;
/// Average run time in ns below which a kind is short-running: one thread processes a queue of such tasks faster than
/// another thread could wake up.
const QUICK_NS: u64 = 5_000;
/// Weight of one run in the moving average: 1/8.
const MEAN_SHIFT: u32 = 3;

/// A histogram of durations in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyHistogram {
    /// Number of values.
    pub count: u64,
    /// Lowest value, highest value (both inclusive) and number of values of each bucket that is not empty.
    pub buckets: Vec<(u64, u64, u64)>,
}

#[derive(Debug)]
struct HistogramStripe {
    queue_us: AtomicHistogram,
    run_us: AtomicHistogram,
    /// Moving average of run times, in ns.
    mean_ns: AtomicU64,
}

impl HistogramStripe {
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

/// The statistics of a kind.
#[derive(Debug)]
pub(crate) struct KindCounters {
    pub(crate) kind: &'static TaskKind,
    stripes: [OnceLock<Box<HistogramStripe>>; STRIPES],
    /// `true` if runs are shorter than the time that waking a thread takes.
    quick: AtomicBool,
    pub(crate) panics: AtomicU64,
    pub(crate) slow: AtomicU64,
}

impl KindCounters {
    pub(crate) fn new(kind: &'static TaskKind) -> Self {
        Self {
            kind,
            stripes: std::array::from_fn(|_| OnceLock::new()),
            quick: AtomicBool::new(false),
            panics: AtomicU64::new(0),
            slow: AtomicU64::new(0),
        }
    }

    pub(crate) fn record(&self, thread: usize, queue_ns: u64, run_ns: u64) {
        let stripe =
            self.stripes[thread % STRIPES].get_or_init(|| Box::new(HistogramStripe::new()));
        let limit = (1 << MAX_VALUE_POWER) - 1;
        // The values are within the limit, so the histograms accept them.
        let _ = stripe.queue_us.increment((queue_ns / 1_000).min(limit));
        let _ = stripe.run_us.increment((run_ns / 1_000).min(limit));
        let mean_ns = stripe.mean_ns.load(Ordering::Relaxed);
        let mean_ns = mean_ns - (mean_ns >> MEAN_SHIFT) + (run_ns >> MEAN_SHIFT);
        stripe.mean_ns.store(mean_ns, Ordering::Relaxed);
        // Written on change only, because other threads read it all the time.
        if self.is_quick() != (mean_ns < QUICK_NS) {
            self.quick.store(mean_ns < QUICK_NS, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_quick(&self) -> bool {
        self.quick.load(Ordering::Relaxed)
    }

    fn sum(&self, which: impl Fn(&HistogramStripe) -> &AtomicHistogram) -> LatencyHistogram {
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
        LatencyHistogram {
            count: sum.iter().map(|(_, _, count)| count).sum(),
            buckets: sum,
        }
    }

    pub(crate) fn info(&self) -> TaskKindStats {
        TaskKindStats {
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

/// The statistics of all kinds that an executor has used, by [`TaskKind::index`].
#[derive(Debug)]
pub(crate) struct KindTable(Box<[OnceLock<KindCounters>]>);

impl Default for KindTable {
    fn default() -> Self {
        Self((0..MAX_KINDS).map(|_| OnceLock::new()).collect())
    }
}

impl KindTable {
    pub(crate) fn enter(&self, kind: &'static TaskKind) -> (usize, &KindCounters) {
        let index = kind.index();
        (index, self.0[index].get_or_init(|| KindCounters::new(kind)))
    }

    pub(crate) fn get(&self, index: usize) -> &KindCounters {
        self.0[index].get().expect("a task's kind was entered")
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &KindCounters> {
        self.0.iter().filter_map(OnceLock::get)
    }
}

/// The statistics of a task kind.
#[derive(Clone, Debug)]
pub struct TaskKindStats {
    /// The kind.
    pub kind: &'static TaskKind,
    /// Time from being due to the start of the run, in us.
    pub queue_time: LatencyHistogram,
    /// Duration of the run, in us.
    pub run_time: LatencyHistogram,
    /// Number of runs that panicked.
    pub panics: u64,
    /// Number of runs that took longer than expected.
    pub slow: u64,
}

/// The figures of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolInfo {
    /// The pool.
    pub pool: Pool,
    /// Requested number of threads.
    pub threads: usize,
    /// Number of sleeping threads.
    pub idle: usize,
    /// Number of due tasks that wait for a thread.
    pub queued: usize,
}

/// The state of a task, as reported to operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// The task sleeps for this time from now, or until a wake if `None`.
    Snoozing(Option<Duration>),
    /// The task is due and waits for a thread.
    Queued,
    /// A thread runs the task.
    Running,
}

/// The figures of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskInfo {
    /// Id of the task.
    pub id: TaskId,
    /// Name of its owner.
    pub owner: String,
    /// Name of its kind.
    pub kind: &'static str,
    /// Pool of the task.
    pub pool: Pool,
    /// Priority of the task.
    pub priority: Priority,
    /// Description of the task.
    pub description: String,
    /// State of the task.
    pub state: TaskState,
    /// Number of runs that have begun.
    pub runs: u32,
    /// Sum of the run times.
    pub run_time: Duration,
    /// Duration of the last completed run.
    pub last_run: Duration,
    /// Time since the start of the current run, or `None` if the task does not run.
    pub runs_for: Option<Duration>,
}
