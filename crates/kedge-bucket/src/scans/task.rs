//! The task that makes scans and continues them.

use super::ScanLane;
use super::job::{Job, Turn};
use crate::scans::component::RangeScanner;
use kedge_bucket_core::TaskBody;
use kedge_bucket_core::Total;
use kedge_executor::Next;
use std::time::Duration;

/// A run of the task; others may run before the next.
const SLICE: Duration = Duration::from_millis(25);

/// The task: one for each lane.
#[derive(Debug)]
pub(crate) struct RangeScans {
    lane: usize,
}

impl RangeScans {
    pub(crate) fn new(lane: usize) -> Self {
        Self { lane }
    }

    /// Gives each command its turn. Whether any went on.
    fn round(scanner: &RangeScanner, lane: &ScanLane) -> bool {
        let mut worked = false;
        let count = lane.queue.lock().jobs.len();
        for _ in 0..count {
            let Some(mut job) = lane.queue.lock().jobs.pop_front() else {
                break;
            };
            let turn = job.turn(scanner, lane);
            let is_over = matches!(turn, Turn::Over(_));
            worked |= !matches!(turn, Turn::Waits);
            if !is_over {
                lane.queue.lock().jobs.push_back(job);
            }
            if let Turn::Worked(Some(part)) | Turn::Over(part) = turn {
                scanner.core.setup.completions.complete(&mut vec![part]);
            }
        }
        worked
    }

    /// Ends the lane's scans that were idle for too long. When the next thing is to be looked at.
    fn end_idle(&self, scanner: &RangeScanner, lane: &ScanLane) -> Option<u64> {
        let now_ns = scanner.core.setup.clock.now().mono_ns;
        let lanes = scanner.scans.lanes().len();
        let mut next = None;
        let mut open = scanner.scans.open.lock();
        open.retain(|_, scan| {
            let Some(at) = scan
                .idle_at_ns()
                .filter(|_| scan.vb.index() % lanes == self.lane)
            else {
                return true;
            };
            if at <= now_ns {
                scanner.core.totals.add(Total::RangeScansIdle, 1);
                return false;
            }
            next = Some(next.map_or(at, |next: u64| next.min(at)));
            true
        });
        drop(open);
        let queue = lane.queue.lock();
        let deadlines = queue.jobs.iter().filter_map(Job::deadline_ns);
        deadlines.chain(next).min()
    }
}

impl TaskBody<RangeScanner> for RangeScans {
    fn run(&mut self, scanner: &RangeScanner, _: Duration) -> Next {
        let lane = &scanner.scans.lanes()[self.lane];
        lane.parker.clear();
        let now_ns = || scanner.core.setup.clock.now().mono_ns;
        let began_ns = now_ns();
        let mut lies = false;
        loop {
            let went_on = Self::round(scanner, lane);
            if !went_on && lies {
                let next = self.end_idle(scanner, lane);
                return next.map_or(Next::Sleep, |at| {
                    Next::Snooze(Duration::from_nanos(at.saturating_sub(now_ns())))
                });
            }
            if went_on {
                lane.parker.clear();
            } else {
                lane.parker.park();
            }
            lies = !went_on;
            if went_on && now_ns().saturating_sub(began_ns) >= SLICE.as_nanos() as u64 {
                return Next::Again;
            }
        }
    }
}
