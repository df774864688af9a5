//! When files are compacted without anyone's asking: a look at those that changed.
//!
//! Invariants:
//! * A file that had a commit since the last look is in the list, once, and the task is about to look.
//! * A file that changes puts off nothing that the task is to do before it looks.

use super::queue::{CompactionWish, QueuedRequest};
use super::when::{is_due, times_due};
use crate::persistence::Persistence;
use kedge_bucket_core::{Parker, TaskBody};
use kedge_executor::Next;
use kedge_sync::{
    RankedMutex,
    ranks::{ChangedFiles, DeferredFiles},
};
use kedge_types::VbId;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// From a commit to the look at its file.
const PERIOD: Duration = Duration::from_secs(10);
/// No longer than this to a look that waits for a time of the day, as clocks are set.
const HOUR: Duration = Duration::from_secs(3_600);

/// Files that are to be looked at.
#[derive(Debug)]
pub(super) struct Changed {
    marked: Box<[AtomicBool]>,
    list: RankedMutex<ChangedFiles, Vec<VbId>>,
    /// Those that were found due at a time at which nothing is compacted by itself.
    put_off: RankedMutex<DeferredFiles, BTreeSet<VbId>>,
    /// When the task, while it lies, gets up although no file changes.
    next_run_ns: AtomicU64,
}

impl Changed {
    pub(super) fn new(vbuckets: u16) -> Self {
        Self {
            marked: (0..vbuckets).map(|_| AtomicBool::new(false)).collect(),
            list: RankedMutex::default(),
            put_off: RankedMutex::default(),
            next_run_ns: AtomicU64::new(u64::MAX),
        }
    }

    /// Whether it was not marked before.
    fn mark(&self, vb: VbId) -> bool {
        let mark = &self.marked[vb.index()];
        let is_new = !mark.load(Ordering::Relaxed) && !mark.swap(true, Ordering::SeqCst);
        if is_new {
            self.list.lock().push(vb);
        }
        is_new
    }

    fn take(&self) -> Vec<VbId> {
        let list = std::mem::take(&mut *self.list.lock());
        for vb in &list {
            self.marked[vb.index()].store(false, Ordering::SeqCst);
        }
        list
    }

    fn is_empty(&self) -> bool {
        self.list.lock().is_empty()
    }
}

/// The task. It also begins what waits for a pause to end.
#[derive(Debug)]
pub(crate) struct CompactionLook;

impl CompactionLook {
    /// Files as an earlier process left them are looked at after this time.
    pub(crate) const FIRST: Duration = PERIOD;
}

impl TaskBody<Persistence> for CompactionLook {
    fn run(&mut self, persistence: &Persistence, _: Duration) -> Next {
        let parker: &Parker = &persistence.compactions.parker;
        parker.clear();
        persistence.keep_reserve();
        let hours = persistence.look_at_files();
        persistence.begin_compactions();
        let now_ns = persistence.core.setup.clock.now().mono_ns;
        let retry_ns = persistence.compactions.queue.lock().next_retry_ns(now_ns);
        let retry = retry_ns.map(|at_ns| Duration::from_nanos(at_ns - now_ns));
        let rest = retry.into_iter().chain(hours).min();
        let changed = &persistence.compactions.changed;
        let next_run_ns = rest.map_or(u64::MAX, |rest| {
            now_ns.saturating_add(rest.as_nanos() as u64)
        });
        changed.next_run_ns.store(next_run_ns, Ordering::SeqCst);
        parker.park();
        if !changed.is_empty() {
            parker.clear();
            return Next::Snooze(rest.map_or(PERIOD, |rest| rest.min(PERIOD)));
        }
        rest.map_or(Next::Sleep, Next::Snooze)
    }
}

impl Persistence {
    /// A vBucket's file has a new commit.
    pub(crate) fn on_file_changed(&self, vb: VbId) {
        let compactions = &self.compactions;
        if !compactions.changed.mark(vb) {
            return;
        }
        if let Some(task) = compactions.parker.unpark() {
            let executor = &self.core.setup.executor;
            let next_run_ns = compactions.changed.next_run_ns.load(Ordering::SeqCst);
            let left_ns = next_run_ns.saturating_sub(self.core.setup.clock.now().mono_ns);
            // One that is still falling asleep sees to it itself.
            if !executor.snooze(task, PERIOD.min(Duration::from_nanos(left_ns))) {
                executor.wake(task);
            }
        }
    }

    /// All files are to be looked at, as they may have been left in any shape.
    pub(crate) fn mark_all_files(&self) {
        for vb in 0..self.core.vbucket_count() {
            self.compactions.changed.mark(VbId(vb));
        }
    }

    /// Says when to look again although no file changes: when the time of the day begins or ends at which files are
    /// compacted by themselves.
    fn look_at_files(&self) -> Option<Duration> {
        let config = self.core.config().compaction;
        let changed = &self.compactions.changed;
        let unix_secs = self.core.setup.clock.now().unix_secs();
        let left = config.hours.map(|hours| hours.secs_left(unix_secs));
        let is_time = left != Some(None);
        if is_time {
            let put_off = std::mem::take(&mut *changed.put_off.lock());
            for vb in put_off {
                changed.mark(vb);
            }
        } else if config.hours.is_some_and(|hours| hours.abort_outside) {
            let given_up = self.compactions.queue.lock().cancel_by_itself();
            changed.put_off.lock().extend(given_up);
        }
        self.look_at(changed.take(), is_time);
        let hours = config.hours?;
        let ends = hours.abort_outside && self.compactions.queue.lock().has_by_itself();
        let secs = match left.flatten() {
            Some(left) => ends.then_some(left),
            None => (!changed.put_off.lock().is_empty()).then(|| hours.secs_to_begin(unix_secs)),
        };
        secs.map(|secs| Duration::from_secs(secs).min(HOUR))
    }

    /// A file is about to be compacted for its garbage: how much that is says whether compactions keep up.
    pub(super) fn note_backlog(&self, vb: VbId) {
        let config = self.core.config().compaction;
        if let Ok(Some(file)) = self.core.file_figures(vb) {
            let times = times_due(&config, self.core.vbucket_count(), &file);
            self.compactions.throttle.on_backlog(times);
        }
    }

    fn look_at(&self, changed: Vec<VbId>, is_time: bool) {
        let Ok(storage) = self.core.storage() else {
            return;
        };
        let config = self.core.config().compaction;
        for vb in changed {
            if self.core.vbuckets[vb.index()].lock().store().is_file_void() {
                // It goes as it is. What takes its place comes here again.
                continue;
            }
            match storage.file_figures(vb) {
                Ok(Some(file)) => {
                    let has_dropped = storage.has_dropped(vb);
                    let is_due = is_due(&config, self.core.vbucket_count(), &file);
                    if is_due && !has_dropped && !is_time {
                        self.compactions.changed.put_off.lock().insert(vb);
                    } else if is_due || has_dropped {
                        let asked = QueuedRequest {
                            wish: CompactionWish::default(),
                            tickets: Vec::new(),
                            by_itself: !has_dropped,
                        };
                        self.compactions.queue.lock().ask(vb, asked);
                    }
                }
                Ok(None) => {}
                // Whoever needs the file says so, too. Its next commit brings it here again.
                Err(error) => {
                    tracing::warn!(bucket = self.core.name(), vbucket = %vb, %error, "a file cannot be looked at");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_listed_once_until_it_was_looked_at() {
        let changed = Changed::new(4);
        assert!(changed.mark(VbId(2)) && !changed.mark(VbId(2)) && changed.mark(VbId(0)));
        assert_eq!(changed.take(), [VbId(2), VbId(0)]);
        assert!(changed.is_empty() && changed.mark(VbId(2)));
    }
}
