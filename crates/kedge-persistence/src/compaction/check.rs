//! Automatic compaction: the periodic check of changed files for garbage.
//!
//! Invariants:
//! * A file that had a commit since the last check is in the list once, and a run of the task is scheduled.
//! * Further changes of files do not delay that run, nor other work of the task.

use super::Compactions;
use super::changed::PERIOD;
use super::policy::{garbage_multiple, is_due};
use super::queue::{PurgeOptions, QueuedCompaction};
use kedge_bucket_core::{Parker, TaskBody};
use kedge_executor::Next;
use kedge_storage::FileEncryption;
use kedge_types::VbId;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The maximum delay of a check at a certain time of day. The system clock may be set meanwhile.
const RECHECK_MAX: Duration = Duration::from_secs(3_600);

/// The task. It also starts compactions whose retry pause has ended.
#[derive(Debug)]
pub(crate) struct CompactionCheck;

impl CompactionCheck {
    /// The delay of the first check, of files from an earlier process.
    pub(crate) const FIRST_RUN: Duration = PERIOD;
}

impl TaskBody<Compactions> for CompactionCheck {
    fn run(&mut self, compactions: &Compactions, _: Duration) -> Next {
        let parker: &Parker = &compactions.shared.changed_files.parker;
        parker.clear();
        compactions.reserve.ensure(&compactions.core);
        let hours = compactions.check_files();
        compactions.begin_queued();
        let now_ns = compactions.core.setup.clock.now().mono_ns;
        let retry_ns = compactions.queue.lock().next_retry_ns(now_ns);
        let retry = retry_ns.map(|at_ns| Duration::from_nanos(at_ns - now_ns));
        let delay = retry.into_iter().chain(hours).min();
        let changed = &compactions.shared.changed_files;
        let next_run_ns = delay.map_or(u64::MAX, |delay| {
            now_ns.saturating_add(delay.as_nanos() as u64)
        });
        changed.next_run_ns.store(next_run_ns, Ordering::SeqCst);
        parker.park();
        if !changed.is_empty() {
            parker.clear();
            return Next::Snooze(delay.map_or(PERIOD, |delay| delay.min(PERIOD)));
        }
        delay.map_or(Next::Sleep, Next::Snooze)
    }
}

impl Compactions {
    /// Examines the listed files, and returns the time until the hours of automatic compaction begin or end, if the
    /// task must run then even if no file changes.
    fn check_files(&self) -> Option<Duration> {
        let config = self.core.config().compaction;
        let changed = &self.shared.changed_files;
        let unix_secs = self.core.setup.clock.now().unix_secs();
        let left = config.hours.map(|hours| hours.secs_left(unix_secs));
        let is_allowed = left != Some(None);
        if is_allowed {
            let deferred = std::mem::take(&mut *changed.deferred.lock());
            for vb in deferred {
                changed.add(vb);
            }
        } else if config.hours.is_some_and(|hours| hours.abort_outside) {
            let cancelled = self.queue.lock().cancel_automatic();
            changed.deferred.lock().extend(cancelled);
        }
        self.enqueue_due(changed.take(), is_allowed);
        let hours = config.hours?;
        let ends = hours.abort_outside && self.queue.lock().has_automatic();
        let secs = match left.flatten() {
            Some(left) => ends.then_some(left),
            None => (!changed.deferred.lock().is_empty()).then(|| hours.secs_to_begin(unix_secs)),
        };
        secs.map(|secs| Duration::from_secs(secs).min(RECHECK_MAX))
    }

    /// Reports the garbage of a file that is about to be compacted automatically. The throttle derives from it whether
    /// compactions keep up.
    pub(super) fn note_backlog(&self, vb: VbId) {
        let config = self.core.config().compaction;
        if let Ok(Some(file)) = self.core.file_figures(vb) {
            let times = garbage_multiple(&config, self.core.vbucket_count(), &file);
            self.shared.compaction_throttle.on_backlog(times);
        }
    }

    fn enqueue_due(&self, changed: Vec<VbId>, is_allowed: bool) {
        let Ok(storage) = self.core.storage() else {
            return;
        };
        let config = self.core.config().compaction;
        for vb in changed {
            if self.core.vbuckets[vb.index()].lock().store().is_file_void() {
                // The file is about to be replaced. The new file is added to the list.
                continue;
            }
            match storage.file_figures(vb) {
                Ok(Some(file)) => {
                    // Neither waits for the hours of automatic compaction.
                    let must_go = storage.has_dropped(vb)
                        || FileEncryption::of(storage).is_of_another_key(vb);
                    let is_due = is_due(&config, self.core.vbucket_count(), &file);
                    if is_due && !must_go && !is_allowed {
                        self.shared.changed_files.deferred.lock().insert(vb);
                    } else if is_due || must_go {
                        let request = QueuedCompaction {
                            purge: PurgeOptions::default(),
                            tickets: Vec::new(),
                            is_automatic: !must_go,
                        };
                        self.queue.lock().enqueue(vb, request);
                    }
                }
                Ok(None) => {}
                // Whatever needs the file reports the error, too. The next commit adds the file to the list again.
                Err(error) => {
                    tracing::warn!(
                        bucket = self.core.name(),
                        vbucket = %vb,
                        %error,
                        "a vBucket's file could not be checked for garbage"
                    );
                }
            }
        }
    }
}
