//! The task that executes creates and continues of range scans.

use super::ScanLane;
use super::job::{ScanJob, ScanProgress};
use crate::scans::component::RangeScanner;
use kedge_bucket_core::{TaskBody, Total};
use kedge_executor::Next;
use std::time::Duration;

/// The maximum duration of one run of the task.
const SLICE: Duration = Duration::from_millis(25);

/// The task of one lane.
#[derive(Debug)]
pub(crate) struct RangeScanTask {
    lane: usize,
}

impl RangeScanTask {
    pub(crate) fn new(lane: usize) -> Self {
        Self { lane }
    }

    /// Runs one step of each queued command. Returns whether any command advanced.
    fn round(scanner: &RangeScanner, lane: &ScanLane) -> bool {
        let mut advanced = false;
        let count = lane.queue.lock().jobs.len();
        for _ in 0..count {
            let Some(mut job) = lane.queue.lock().jobs.pop_front() else {
                break;
            };
            let progress = job.advance(scanner, lane);
            let is_finished = matches!(progress, ScanProgress::Finished(_));
            advanced |= !matches!(progress, ScanProgress::Waiting);
            if !is_finished {
                lane.queue.lock().jobs.push_back(job);
            }
            if let ScanProgress::Advanced(Some(part)) | ScanProgress::Finished(part) = progress {
                scanner.core.setup.completions.complete(&mut vec![part]);
            }
        }
        advanced
    }

    /// Closes the lane's scans that exceeded their idle timeout. Returns the time of the next deadline, in nanoseconds.
    fn close_idle(&self, scanner: &RangeScanner, lane: &ScanLane) -> Option<u64> {
        let now_ns = scanner.core.setup.clock.now().mono_ns;
        let lanes = scanner.scans.lanes().len();
        let mut next = None;
        let mut open = scanner.scans.open.lock();
        open.retain(|_, scan| {
            let Some(at) = scan
                .idle_deadline_ns()
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
        let deadlines = queue.jobs.iter().filter_map(ScanJob::deadline_ns);
        deadlines.chain(next).min()
    }
}

impl TaskBody<RangeScanner> for RangeScanTask {
    fn run(&mut self, scanner: &RangeScanner, _: Duration) -> Next {
        let lane = &scanner.scans.lanes()[self.lane];
        lane.parker.clear();
        let now_ns = || scanner.core.setup.clock.now().mono_ns;
        let began_ns = now_ns();
        let mut is_parked = false;
        loop {
            let advanced = Self::round(scanner, lane);
            if !advanced && is_parked {
                let next = self.close_idle(scanner, lane);
                return next.map_or(Next::Sleep, |at| {
                    Next::Snooze(Duration::from_nanos(at.saturating_sub(now_ns())))
                });
            }
            if advanced {
                lane.parker.clear();
            } else {
                lane.parker.park();
            }
            is_parked = !advanced;
            if advanced && now_ns().saturating_sub(began_ns) >= SLICE.as_nanos() as u64 {
                return Next::Again;
            }
        }
    }
}
