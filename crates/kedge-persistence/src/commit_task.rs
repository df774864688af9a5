//! The task of a writer: it commits queued changes, and sleeps when there are none.

use crate::writer::{IDLE, RUNNING, TIMED, WriterState};
use crate::writers::Writers;
use kedge_bucket_core::{BucketPhase, TaskBody};
use kedge_executor::Next;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The pause before another attempt to write to a full disk.
const DISK_FULL_RETRY: Duration = Duration::from_millis(100);
/// The pause after the first transient error. It doubles with every further one in a row.
const ERROR_RETRY: Duration = Duration::from_millis(100);
/// The maximum number of doublings, which gives a pause of 3.2 s.
const ERROR_DOUBLINGS: u32 = 5;
/// The idle time after which an end marker is written behind the last batch.
const END_MARKER_DELAY: Duration = Duration::from_secs(1);

/// The maximum duration of a run while commands wait. Then the tasks of other buckets get the thread.
const RUN_TIME_MAX: Duration = Duration::from_millis(10);
/// The maximum number of changes that a run writes.
pub(crate) const RUN_ITEMS_MAX: usize = 4_096;

/// The event that the task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriterWait {
    /// No event: the last run left queued changes.
    None,
    /// The end of the interval, at this time of the executor's clock.
    Interval(Duration),
    /// A new change. An end marker is due from this time of the executor's clock on.
    Idle(Duration),
}

impl Default for WriterWait {
    /// Changes that precede the first run wait for the interval, too.
    fn default() -> Self {
        Self::Idle(Duration::ZERO)
    }
}

/// The task of one writer.
#[derive(Debug, Default)]
pub(crate) struct CommitTask {
    /// The index of the writer.
    lane: usize,
    wait: WriterWait,
    /// True if the end marker follows the last batch.
    has_end_marker: bool,
    /// The number of consecutive transient errors.
    failures: u32,
}

impl TaskBody<Writers> for CommitTask {
    fn run(&mut self, writers: &Writers, now: Duration) -> Next {
        let writer = &writers.shared.queues.writers[self.lane];
        let before = writer.state.swap(RUNNING, Ordering::SeqCst);
        let urgent = writer.urgent.swap(false, Ordering::SeqCst);
        match self.wait {
            _ if urgent => {}
            WriterWait::None => {}
            // A late wake-up must not shorten the next interval.
            WriterWait::Interval(end) if now < end => {
                if let Some(next) = self.start_interval(writers, now, end - now) {
                    return next;
                }
            }
            WriterWait::Interval(_) => {}
            // The interval that `WriteQueues::on_dirty` started without a run is over.
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

/// Returns whether writes that were refused because of this writer are to be accepted after its batch, which may have had
/// no changes. The batch that could not be written may be that of another thread, which left the changes to this task.
fn must_accept_writes(writers: &Writers, writer: &WriterState) -> bool {
    let has_failed = |writer: &WriterState| writer.has_failed.load(Ordering::SeqCst);
    if has_failed(writer) {
        writer.has_failed.store(false, Ordering::SeqCst);
        return true;
    }
    let mut others = writers.shared.queues.writers.iter();
    writers.core.quota.withholds_writes() && !others.any(has_failed)
}

impl CommitTask {
    pub(crate) fn new(lane: usize) -> Self {
        Self {
            lane,
            ..Self::default()
        }
    }

    /// Commits batches while commands wait. Going through the queue of the pool between two batches would cost a
    /// wake-up.
    fn commit(&mut self, writers: &Writers, now: Duration) -> Next {
        let writer = &writers.shared.queues.writers[self.lane];
        let start_ns = writers.core.setup.clock.now().mono_ns;
        let mut items = 0;
        loop {
            self.wait = WriterWait::None;
            self.has_end_marker = false;
            // A command that waits now has its change in the lists that are read next.
            writer.urgent.store(false, Ordering::SeqCst);
            match writers.write_batch(self.lane) {
                Ok(wrote) => {
                    self.failures = 0;
                    if !wrote.more && must_accept_writes(writers, writer) {
                        writers.shared.on_written();
                    }
                    items += wrote.items;
                    if !wrote.more
                        && let Some(next) = self.end_run(writers, now)
                    {
                        return next;
                    }
                }
                Err(error) if error.is_no_space() => {
                    writer.has_failed.store(true, Ordering::SeqCst);
                    return Next::Snooze(DISK_FULL_RETRY);
                }
                Err(error) if error.is_passing() && !writers.core.has_ended() => {
                    let pause = ERROR_RETRY * (1 << self.failures.min(ERROR_DOUBLINGS));
                    self.failures += 1;
                    writer.has_failed.store(true, Ordering::SeqCst);
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
            if is_over || writers.core.phase() == BucketPhase::Closed {
                return Next::Again;
            }
        }
    }

    /// Returns the next state of the task after a run that left nothing urgent. Returns `None` when a command has begun
    /// to wait meanwhile, so that the task commits again.
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
