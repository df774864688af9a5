//! The pace that all compactions of a bucket share.
//!
//! What is measured is what clients wait for: the syncs of the log; without a log, the commits of files. Commits that
//! settle what the log has are left out: nobody waits for them, they take as long as they have to write, and between
//! the others they would look like disturbance.

use super::config::CompactionPace;
use kedge_storage::{PaceFigures, Pacer};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[derive(Debug)]
struct State {
    pacer: Pacer,
    pace: CompactionPace,
}

impl State {
    fn is_off(&self) -> bool {
        self.pace == CompactionPace::Off
    }
}

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Pacing {
    state: Mutex<State>,
    /// Compactions under way that nobody slows down.
    unpaced: AtomicUsize,
    /// Counts the times that the pace became another.
    changes: AtomicU64,
}

impl Pacing {
    pub(super) fn new(pace: CompactionPace) -> Self {
        Self {
            state: Mutex::new(State {
                pacer: Pacer::new(pace.bounds().unwrap_or_default()),
                pace,
            }),
            unpaced: AtomicUsize::new(0),
            changes: AtomicU64::new(0),
        }
    }

    /// Whether it is another pace than before.
    pub(super) fn set(&self, pace: CompactionPace) -> bool {
        let mut state = self.state.lock();
        if state.pace == pace {
            return false;
        }
        state.pace = pace;
        if let Some(bounds) = pace.bounds() {
            state.pacer.reconfigure(bounds);
        }
        drop(state);
        self.changes.fetch_add(1, Ordering::Relaxed);
        true
    }

    pub(super) fn is_on(&self) -> bool {
        !self.state.lock().is_off()
    }

    /// Another number than before: there is another pace since, and a rest that it asked for has lost its reason.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// A commit that clients wait for took so long.
    pub(super) fn on_commit(&self, latency_us: u64) {
        // What goes on beside compactions that are not slowed down says nothing of what is usual.
        if self.unpaced.load(Ordering::Relaxed) > 0 {
            return;
        }
        let mut state = self.state.lock();
        if !state.is_off() {
            state.pacer.on_commit(latency_us);
        }
    }

    /// A compaction begins of a file that has so many times the garbage that makes it due.
    pub(super) fn on_backlog(&self, times: u64) {
        self.state.lock().pacer.on_backlog(times);
    }

    /// How long to wait before so many bytes, in nanoseconds.
    pub(super) fn on_bytes(&self, bytes: u64, now_ns: u64) -> u64 {
        let mut state = self.state.lock();
        if state.is_off() {
            return 0;
        }
        state.pacer.on_bytes(bytes, now_ns)
    }

    pub(super) fn figures(&self) -> PaceFigures {
        let state = self.state.lock();
        if state.is_off() {
            return PaceFigures::default();
        }
        state.pacer.figures()
    }

    /// A compaction that nobody slows down is under way as long as what is returned lives.
    pub(super) fn begin_unpaced(&self) -> Unpaced<'_> {
        self.unpaced.fetch_add(1, Ordering::Relaxed);
        Unpaced(self)
    }
}

pub(super) struct Unpaced<'a>(&'a Pacing);

impl Drop for Unpaced<'_> {
    fn drop(&mut self) {
        self.0.unpaced.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: u64 = 1_000_000_000;

    #[test]
    fn a_pace_can_be_given_and_taken_away_at_any_time() {
        let pacing = Pacing::new(CompactionPace::BytesPerSec(1_000));
        let pause_ns = pacing.on_bytes(1_000, SEC);
        assert!((SEC * 9 / 10..=SEC).contains(&pause_ns), "{pause_ns}");
        assert!(!pacing.set(CompactionPace::BytesPerSec(1_000)));
        assert_eq!(pacing.changes(), 0);
        assert!(pacing.set(CompactionPace::Off));
        assert_eq!(pacing.changes(), 1);
        assert_eq!(pacing.on_bytes(1 << 40, 2 * SEC), 0);
        assert_eq!(pacing.figures(), PaceFigures::default());
        pacing.set(CompactionPace::BytesPerSec(2_000));
        assert_eq!(pacing.figures().bytes_per_sec, 2_000);
        pacing.set(CompactionPace::Auto);
        assert!(pacing.figures().bytes_per_sec >= 1 << 20);
    }

    #[test]
    fn what_is_usual_is_learnt_only_beside_compactions_that_are_paced() {
        let pacing = Pacing::new(CompactionPace::Auto);
        let unpaced = pacing.begin_unpaced();
        (0..100).for_each(|_| pacing.on_commit(90_000));
        drop(unpaced);
        (0..100).for_each(|_| pacing.on_commit(500));
        pacing.on_bytes(1, SEC);
        assert_eq!(pacing.figures().undisturbed_us, Some(500));
    }
}
