//! A parallel for-each: work on many items that several threads share.
//!
//! Invariant: [`ParallelForEach::finish`] waits only for helpers that have begun. So it returns also when no thread ever
//! helps, and a helper that begins late finds nothing to do.

use crate::error::BucketError;
use crate::task::Component;
use kedge_executor::{Pool, Priority, TaskKind};
use kedge_sync::{RankedCondvar, RankedMutex, ranks::ParallelState};
use std::sync::Arc;
use std::time::Duration;

/// A helper reads files and log at a start.
static LOAD: TaskKind = TaskKind::new(
    "load",
    Pool::Reader,
    Priority::High,
    Duration::from_secs(60),
);
/// Threads that share the work of a start.
const THREADS: usize = 4;

/// Work on each of a number of items.
pub struct ParallelForEach<W> {
    work: W,
    count: usize,
    state: RankedMutex<ParallelState, ForEachState>,
    left: RankedCondvar,
}

struct ForEachState {
    next: usize,
    helping: usize,
    error: Option<BucketError>,
}

impl<W: Fn(usize) -> Result<(), BucketError>> ParallelForEach<W> {
    /// Returns work that has not begun.
    pub fn new(count: usize, work: W) -> Arc<Self> {
        let state = ForEachState {
            next: 0,
            helping: 0,
            error: None,
        };
        Arc::new(Self {
            work,
            count,
            state: RankedMutex::new(state),
            left: RankedCondvar::new(),
        })
    }

    /// Works on items until none is left.
    pub fn help(&self) {
        self.state.lock().helping += 1;
        // Also when the work panics.
        let _leaving = Departure(self);
        while let Some(index) = self.take() {
            if let Err(error) = (self.work)(index) {
                let mut state = self.state.lock();
                state.next = self.count;
                state.error.get_or_insert(error);
            }
        }
    }

    /// Works on the items that are left, and returns when all are done, or the first error has ended the work.
    pub fn finish(&self) -> Result<(), BucketError> {
        self.help();
        let mut state = self.state.lock();
        while state.helping > 0 {
            self.left.wait(&mut state);
        }
        state.error.take().map_or(Ok(()), Err)
    }

    fn take(&self) -> Option<usize> {
        let mut state = self.state.lock();
        let index = state.next;
        state.next = (index + 1).min(self.count);
        (index < self.count).then_some(index)
    }
}

/// Runs `work` once for each number below `count`, on several threads, while the bucket is loading. The first error ends it.
///
/// # Errors
/// Those of `work`; [`BucketError::NotLoaded`] when the bucket is shut down meanwhile.
pub fn share_out<C: Component>(
    component: &Arc<C>,
    count: usize,
    work: impl Fn(&C, usize) -> Result<(), BucketError> + Send + Sync + 'static,
) -> Result<(), BucketError> {
    if count == 0 {
        return Ok(());
    }
    let worker = Arc::clone(component);
    let work = move |index: usize| {
        worker.core().check_loading()?;
        work(&worker, index)
    };
    let helpers = THREADS.min(count) - 1;
    let all = ParallelForEach::new(count, work);
    let core = component.core();
    for _ in 0..helpers {
        let all = Arc::clone(&all);
        let help = move || all.help();
        // A helper that is refused, or comes too late, is not missed.
        drop(core.setup.executor.submit_as(&LOAD, core.owner, help));
    }
    all.finish()
}

struct Departure<'a, W>(&'a ParallelForEach<W>);

impl<W> Drop for Departure<'_, W> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if std::thread::panicking() {
            state.next = self.0.count;
            state.error.get_or_insert(BucketError::NotLoaded(
                "of a helper that panicked".to_owned(),
            ));
        }
        state.helping -= 1;
        self.0.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn each_item_is_done_once_by_one_of_the_threads() {
        let done: Arc<[AtomicUsize]> = (0..1_000).map(|_| AtomicUsize::new(0)).collect();
        let counted = Arc::clone(&done);
        let work = ParallelForEach::new(done.len(), move |index| {
            counted[index].fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| work.help());
            }
            work.finish().unwrap();
        });
        assert!(done.iter().all(|done| done.load(Ordering::Relaxed) == 1));
        work.help();
        assert!(done.iter().all(|done| done.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn first_error_ends_the_work() {
        let work = ParallelForEach::new(1_000, |index| match index {
            5 => Err(BucketError::NotLoaded("five".to_owned())),
            _ => Ok(()),
        });
        let error = work.finish().unwrap_err();
        assert!(error.to_string().contains("five"));
        assert!(work.take().is_none());
    }
}
