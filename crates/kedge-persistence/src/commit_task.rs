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
const REFUSED_RETRY: Duration = Duration::from_millis(100);
/// So often the time doubles: up to 3.2 s.
const REFUSED_DOUBLINGS: u32 = 5;
/// After this much quiet a mark is written behind the last batch.
const IDLE_MARK: Duration = Duration::from_secs(1);

/// A run goes on with the next batch for so long while someone waits; then tasks of other buckets have their turn.
const TURN: Duration = Duration::from_millis(10);
/// Nor does it go on after so many changes.
pub(crate) const RUN_ITEMS_MAX: usize = 4_096;

/// What the task rests for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriterRest {
    /// It does not: the last run left something.
    None,
    /// For the interval, until this time of the executor's clock.
    Interval(Duration),
    /// For something to do; for a mark from this time on.
    Idle(Duration),
}

impl Default for WriterRest {
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
    rest: WriterRest,
    /// The mark stands behind the last batch.
    marked: bool,
    /// So often in a row the system refused.
    refusals: u32,
    /// The last batch could not be written.
    has_failed: bool,
}

impl TaskBody<Writers> for CommitTask {
    fn run(&mut self, writers: &Writers, now: Duration) -> Next {
        let writer = &writers.shared.queues.writers[self.lane];
        let before = writer.state.swap(RUNNING, Ordering::SeqCst);
        let urgent = writer.urgent.swap(false, Ordering::SeqCst);
        match self.rest {
            _ if urgent => {}
            WriterRest::None => {}
            // A wake that came late must not cut the next interval short.
            WriterRest::Interval(end) if now < end => {
                if let Some(next) = self.begin_interval(writers, now, end - now) {
                    return next;
                }
            }
            WriterRest::Interval(_) => {}
            // The interval began without a run, see `Bucket::on_dirty`, and is over.
            WriterRest::Idle(_) if before == TIMED => {}
            WriterRest::Idle(mark_at) => {
                let is_quiet = before == IDLE && now >= mark_at;
                if is_quiet && !self.marked && writers.next_write(self.lane).is_none() {
                    writers.log.mark();
                    self.marked = true;
                }
                if let Some(next) = self.rest(writers, now) {
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
        let began_ns = writers.core.setup.clock.now().mono_ns;
        let mut items = 0;
        loop {
            self.rest = WriterRest::None;
            self.marked = false;
            // Who waits by now has its change in the lists that are looked at next.
            writer.urgent.store(false, Ordering::SeqCst);
            match writers.write_once(self.lane) {
                Ok(wrote) => {
                    self.refusals = 0;
                    if self.has_failed && !wrote.more {
                        writers.shared.on_written();
                        self.has_failed = false;
                    }
                    items += wrote.items;
                    if !wrote.more
                        && let Some(next) = self.rest(writers, now)
                    {
                        return next;
                    }
                }
                Err(error) if error.is_no_space() => {
                    self.has_failed = true;
                    return Next::Snooze(DISK_FULL_RETRY);
                }
                Err(error) if error.is_passing() && !writers.core.has_ended() => {
                    let pause = REFUSED_RETRY * (1 << self.refusals.min(REFUSED_DOUBLINGS));
                    self.refusals += 1;
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
                .saturating_sub(began_ns);
            let is_over = took_ns >= TURN.as_nanos() as u64 || items >= RUN_ITEMS_MAX;
            if is_over || writers.core.phase() == Phase::Closed {
                return Next::Again;
            }
        }
    }

    /// Nothing has to be done now: what comes next? None when someone waits all the same; the task goes on then.
    fn rest(&mut self, writers: &Writers, now: Duration) -> Option<Next> {
        let writer = &writers.shared.queues.writers[self.lane];
        writer.set_state(IDLE);
        if let Some(interval) = writers.next_write(self.lane) {
            return self.begin_interval(writers, now, interval);
        }
        if writer.is_urgent() {
            return self.go_on(writers);
        }
        self.rest = WriterRest::Idle(now + IDLE_MARK);
        Some(if self.marked || writers.core.is_direct() {
            Next::Sleep
        } else {
            Next::Snooze(IDLE_MARK)
        })
    }

    fn begin_interval(
        &mut self,
        writers: &Writers,
        now: Duration,
        interval: Duration,
    ) -> Option<Next> {
        let writer = &writers.shared.queues.writers[self.lane];
        writer.set_state(TIMED);
        if writer.is_urgent() {
            return self.go_on(writers);
        }
        self.rest = WriterRest::Interval(now + interval);
        Some(Next::Snooze(interval))
    }

    fn go_on(&mut self, writers: &Writers) -> Option<Next> {
        writers.shared.queues.writers[self.lane].set_state(RUNNING);
        self.rest = WriterRest::None;
        None
    }
}
