//! The task of a writer: it commits what waits, and rests when there is nothing to do.

use crate::writer::{IDLE, RUNNING, TIMED};
use crate::writers::Writers;
use kedge_bucket_core::{Phase, TaskBody};
use kedge_executor::Next;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a writer waits before it tries a full disk again.
const DISK_FULL_RETRY: Duration = Duration::from_millis(100);
/// What the system refuses is tried again after this time, then after twice as long, and so on.
const ERROR_RETRY: Duration = Duration::from_millis(100);
/// So often the time doubles: up to 3.2 s.
const ERROR_DOUBLINGS: u32 = 5;
/// After this much quiet a mark is written behind the last batch.
const END_MARKER_DELAY: Duration = Duration::from_secs(1);

/// A run goes on with the next batch for so long while someone waits; then tasks of other buckets have their turn.
const RUN_TIME_MAX: Duration = Duration::from_millis(10);
/// Nor does it go on after so many changes.
pub(crate) const RUN_ITEMS_MAX: usize = 4_096;

/// What the task rests for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriterWait {
    /// It does not: the last run left something.
    None,
    /// For the interval, until this time of the executor's clock.
    Interval(Duration),
    /// For something to do; for a mark from this time on.
    Idle(Duration),
}

impl Default for WriterWait {
    /// What is written before the first run waits for the interval as well.
    fn default() -> Self {
        Self::Idle(Duration::ZERO)
    }
}

/// The task.
#[derive(Debug, Default)]
pub(crate) struct CommitTask {
    /// Which of the writers it is.
    lane: usize,
    wait: WriterWait,
    /// The mark stands behind the last batch.
    has_end_marker: bool,
    /// So often in a row the system refused.
    failures: u32,
    /// The last batch could not be written.
    has_failed: bool,
}

impl TaskBody<Writers> for CommitTask {
    fn run(&mut self, writers: &Writers, now: Duration) -> Next {
        let writer = &writers.shared.queues.writers[self.lane];
        let before = writer.state.swap(RUNNING, Ordering::SeqCst);
        let urgent = writer.urgent.swap(false, Ordering::SeqCst);
        match self.wait {
            _ if urgent => {}
            WriterWait::None => {}
            // A wake that came late must not cut the next interval short.
            WriterWait::Interval(end) if now < end => {
                if let Some(next) = self.start_interval(writers, now, end - now) {
                    return next;
                }
            }
            WriterWait::Interval(_) => {}
            // The interval began without a run, see `Bucket::on_dirty`, and is over.
            WriterWait::Idle(_) if before == TIMED => {}
            WriterWait::Idle(marker_at) => {
                let is_quiet = before == IDLE && now >= marker_at;
                if is_quiet
                    && !self.has_end_marker
                    && writers.time_to_next_write(self.lane).is_none()
                {
                    writers.log.write_end_marker();
                    self.has_end_marker = true;
                }
                if let Some(next) = self.end_run(writers, now) {
                    return next;
                }
            }
        }
        self.commit(writers, now)
    }
}

impl CommitTask {
    pub(crate) fn new(lane: usize) -> Self {
        Self {
            lane,
            ..Self::default()
        }
    }

    /// Commits until nobody waits: a turn through the queue of the pool between two batches would cost a wake.
    fn commit(&mut self, writers: &Writers, now: Duration) -> Next {
        let writer = &writers.shared.queues.writers[self.lane];
        let start_ns = writers.core.setup.clock.now().mono_ns;
        let mut items = 0;
        loop {
            self.wait = WriterWait::None;
            self.has_end_marker = false;
            // Who waits by now has its change in the lists that are looked at next.
            writer.urgent.store(false, Ordering::SeqCst);
            match writers.write_batch(self.lane) {
                Ok(wrote) => {
                    self.failures = 0;
                    if self.has_failed && !wrote.more {
                        writers.shared.on_written();
                        self.has_failed = false;
                    }
                    items += wrote.items;
                    if !wrote.more
                        && let Some(next) = self.end_run(writers, now)
                    {
                        return next;
                    }
                }
                Err(error) if error.is_no_space() => {
                    self.has_failed = true;
                    return Next::Snooze(DISK_FULL_RETRY);
                }
                Err(error) if error.is_passing() && !writers.core.has_ended() => {
                    let pause = ERROR_RETRY * (1 << self.failures.min(ERROR_DOUBLINGS));
                    self.failures += 1;
                    self.has_failed = true;
                    return Next::Snooze(pause);
                }
                Err(_) => return Next::Done,
            }
            let took_ns = writers
                .core
                .setup
                .clock
                .now()
                .mono_ns
                .saturating_sub(start_ns);
            let is_over = took_ns >= RUN_TIME_MAX.as_nanos() as u64 || items >= RUN_ITEMS_MAX;
            if is_over || writers.core.phase() == Phase::Closed {
                return Next::Again;
            }
        }
    }

    /// Nothing has to be done now: what comes next? None when someone waits all the same; the task goes on then.
    fn end_run(&mut self, writers: &Writers, now: Duration) -> Option<Next> {
        let writer = &writers.shared.queues.writers[self.lane];
        writer.set_state(IDLE);
        if let Some(interval) = writers.time_to_next_write(self.lane) {
            return self.start_interval(writers, now, interval);
        }
        if writer.is_urgent() {
            return self.keep_running(writers);
        }
        self.wait = WriterWait::Idle(now + END_MARKER_DELAY);
        Some(if self.has_end_marker || writers.core.is_direct() {
            Next::Sleep
        } else {
            Next::Snooze(END_MARKER_DELAY)
        })
    }

    fn start_interval(
        &mut self,
        writers: &Writers,
        now: Duration,
        interval: Duration,
    ) -> Option<Next> {
        let writer = &writers.shared.queues.writers[self.lane];
        writer.set_state(TIMED);
        if writer.is_urgent() {
            return self.keep_running(writers);
        }
        self.wait = WriterWait::Interval(now + interval);
        Some(Next::Snooze(interval))
    }

    fn keep_running(&mut self, writers: &Writers) -> Option<Next> {
        writers.shared.queues.writers[self.lane].set_state(RUNNING);
        self.wait = WriterWait::None;
        None
    }
}
