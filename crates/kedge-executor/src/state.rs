//! The state of a task in one atomic word: its phase, and the requests made during a run.
//!
//! Invariants:
//! * A task is in the run queue of its pool exactly while it is `QUEUED`. The thread that sets `QUEUED` inserts it,
//!   once.
//! * Only the thread that moved a task from `QUEUED` to `RUNNING` runs it and ends that phase, so a task never runs on
//!   two threads at once.
//! * A wake of a running task sets `WOKEN`, and the end of the run starts another run, so no wake is lost.
//! * `CANCELLED` is never cleared. The thread that takes the task from the queue drops it, or the thread that runs it
//!   after the run.
//! * The generation changes when the slot is reused, so an old id matches no task.
//!
//! Layout: generation (32 bits) | changes (24 bits) | flags (8 bits). `changes` counts the task's sleeps, so that a
//! timer that has read an earlier sleep does not end a later one.

use crate::sync::{AtomicU64, Ordering};

const PHASE: u64 = 0b11;
/// The slot is free.
const FREE: u64 = 0;
/// The task sleeps until its deadline or a wake.
const ASLEEP: u64 = 1;
/// The task is in the run queue.
const QUEUED: u64 = 2;
/// A thread runs the task.
const RUNNING: u64 = 3;

/// The task was woken during its run.
const WOKEN: u64 = 1 << 2;
/// The task must not run again.
const CANCELLED: u64 = 1 << 3;
/// The next run is the last.
const LAST: u64 = 1 << 4;
/// A caller waits for the next run to begin.
const AWAITED: u64 = 1 << 5;

const FLAGS: u64 = 0xff;
const CHANGE: u64 = 1 << 8;
const CHANGES: u64 = 0x00ff_ffff << 8;
const GENERATION_SHIFT: u32 = 32;

/// The phase of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskPhase {
    Asleep,
    Queued,
    Running,
}

/// A value of the state word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateWord(u64);

impl StateWord {
    pub(crate) fn generation(self) -> u32 {
        (self.0 >> GENERATION_SHIFT) as u32
    }

    /// Returns the phase, or `None` if the slot is free.
    pub(crate) fn phase(self) -> Option<TaskPhase> {
        match self.0 & PHASE {
            FREE => None,
            ASLEEP => Some(TaskPhase::Asleep),
            QUEUED => Some(TaskPhase::Queued),
            _ => Some(TaskPhase::Running),
        }
    }

    pub(crate) fn is_cancelled(self) -> bool {
        self.0 & CANCELLED != 0
    }

    fn is(self, phase: u64) -> bool {
        self.0 & PHASE == phase
    }

    fn with_phase(self, phase: u64) -> u64 {
        self.0 & !PHASE | phase
    }
}

/// The effect of a wake or a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PostResult {
    /// The task does not exist or is cancelled.
    Gone,
    /// The task is now `QUEUED`, and the caller inserts it into the run queue.
    Queue,
    /// The task is in the run queue already, or another run will follow the current one.
    Noted,
}

/// The flags of a task at the start of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunStart {
    /// The generation of the task.
    pub(crate) generation: u32,
    /// The task is cancelled: the thread drops it without a run.
    pub(crate) cancelled: bool,
    /// A caller waits for this run to begin.
    pub(crate) awaited: bool,
    /// The run is the last.
    pub(crate) last: bool,
}

/// The state of a task after a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterRun {
    /// The task sleeps.
    Asleep,
    /// The task is `QUEUED`, and the caller inserts it into the run queue.
    Queue,
    /// The task is finished: the caller drops it, then frees the slot.
    Dead,
}

#[derive(Debug, Default)]
pub(crate) struct AtomicState(AtomicU64);

impl AtomicState {
    pub(crate) fn load(&self) -> StateWord {
        StateWord(self.0.load(Ordering::SeqCst))
    }

    /// Applies `change` with compare-and-swap until it succeeds, or until it returns `None`.
    fn update(&self, change: impl Fn(StateWord) -> Option<u64>) -> Result<StateWord, StateWord> {
        self.0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| {
                change(StateWord(word))
            })
            .map(StateWord)
            .map_err(StateWord)
    }

    /// Sets the state of a free slot that the caller owns. A task that is `queued` goes into the run queue next; the
    /// caller puts any other to sleep with [`Self::end_asleep`]. Returns the generation of the task.
    pub(crate) fn fill(&self, queued: bool) -> u32 {
        let generation = self.load().generation().wrapping_add(1);
        let phase = if queued { QUEUED } else { RUNNING };
        let word = u64::from(generation) << GENERATION_SHIFT | phase;
        self.0.store(word, Ordering::SeqCst);
        generation
    }

    /// Requests a run: immediately if the task sleeps, or after the current run. Also sets `flag`.
    fn post(&self, generation: u32, flag: u64) -> PostResult {
        let posted = self.update(|view| {
            if view.generation() != generation || view.is_cancelled() || view.is(FREE) {
                return None;
            }
            match view.0 & PHASE {
                ASLEEP => Some(view.with_phase(QUEUED) | flag),
                // Written even if the value is the same: only the write makes the caller's earlier writes visible to
                // the coming run.
                QUEUED => Some(view.0 | flag),
                _ => Some(view.0 | WOKEN | flag),
            }
        });
        match posted {
            Ok(before) if before.is(ASLEEP) => PostResult::Queue,
            Ok(_) => PostResult::Noted,
            Err(_) => PostResult::Gone,
        }
    }

    pub(crate) fn wake(&self, generation: u32) -> PostResult {
        self.post(generation, 0)
    }

    /// Wakes the task like [`Self::wake`], and marks that run as awaited.
    pub(crate) fn wake_awaited(&self, generation: u32) -> PostResult {
        self.post(generation, AWAITED)
    }

    /// Wakes the task like [`Self::wake`], and makes that run the last.
    pub(crate) fn wake_for_last_run(&self, generation: u32) -> PostResult {
        self.post(generation, LAST)
    }

    /// Ends the sleep `seen`, whose deadline has passed. Returns `false` if that sleep is over already.
    pub(crate) fn wake_sleep(&self, seen: StateWord) -> bool {
        seen.is(ASLEEP)
            && self
                .0
                .compare_exchange(
                    seen.0,
                    seen.with_phase(QUEUED),
                    Ordering::SeqCst,
                    Ordering::SeqCst,
                )
                .is_ok()
    }

    /// Claims a sleeping task as if it ran, to change its deadline. [`Self::end_asleep`] releases it. Returns `false`
    /// if the task does not sleep.
    pub(crate) fn claim_sleeping(&self, generation: u32) -> bool {
        self.update(|view| {
            let sleeps = view.generation() == generation && view.is(ASLEEP);
            sleeps.then(|| view.with_phase(RUNNING))
        })
        .is_ok()
    }

    /// Queues a claimed and cancelled task, so that its pool drops it.
    pub(crate) fn queue_dead(&self) {
        let _ = self.update(|view| Some(view.with_phase(QUEUED) | CANCELLED));
    }

    /// Cancels the task: no further run begins.
    pub(crate) fn cancel(&self, generation: u32) -> PostResult {
        let before = self.update(|view| {
            if view.generation() != generation || view.is_cancelled() || view.is(FREE) {
                return None;
            }
            Some(if view.is(ASLEEP) {
                view.with_phase(QUEUED) | CANCELLED
            } else {
                view.0 | CANCELLED
            })
        });
        match before {
            Ok(view) if view.is(ASLEEP) => PostResult::Queue,
            Ok(_) => PostResult::Noted,
            Err(_) => PostResult::Gone,
        }
    }

    /// Starts a run of a task that was taken from the run queue.
    pub(crate) fn begin(&self) -> RunStart {
        let before = self.update(|view| {
            debug_assert!(view.is(QUEUED));
            Some(view.with_phase(RUNNING) & !AWAITED & !WOKEN)
        });
        let (Ok(StateWord(word)) | Err(StateWord(word))) = before;
        RunStart {
            generation: StateWord(word).generation(),
            cancelled: word & CANCELLED != 0,
            awaited: word & AWAITED != 0,
            last: word & LAST != 0,
        }
    }

    /// Ends a run after which the task sleeps.
    pub(crate) fn end_asleep(&self) -> AfterRun {
        self.end(|view| {
            if view.0 & WOKEN != 0 {
                view.with_phase(QUEUED) & !WOKEN
            } else {
                next_change(view.with_phase(ASLEEP))
            }
        })
    }

    /// Ends a run after which the task runs again.
    pub(crate) fn end_again(&self) -> AfterRun {
        self.end(|view| view.with_phase(QUEUED) & !WOKEN)
    }

    fn end(&self, next: impl Fn(StateWord) -> u64) -> AfterRun {
        let mut after = StateWord(0);
        let result = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| {
                after = StateWord(next(StateWord(word)));
                (!StateWord(word).is_cancelled()).then_some(after.0)
            });
        match result {
            Err(_) => AfterRun::Dead,
            Ok(_) if after.is(ASLEEP) => AfterRun::Asleep,
            Ok(_) => AfterRun::Queue,
        }
    }

    /// Frees the slot of a dropped task. Returns `true` if a caller waits for another run.
    pub(crate) fn free(&self) -> bool {
        let generation = self.load().generation();
        // Other threads change flags only, so the phase is the caller's.
        let before = self.0.swap(
            u64::from(generation) << GENERATION_SHIFT | FREE,
            Ordering::SeqCst,
        );
        before & AWAITED != 0
    }
}

fn next_change(word: u64) -> u64 {
    (word & !CHANGES) | (word.wrapping_add(CHANGE) & CHANGES)
}

const _: () = assert!(FLAGS + 1 == CHANGE, "flags and changes meet");
const _: () = assert!(
    CHANGES | FLAGS == u32::MAX as u64,
    "the generation has the upper half"
);

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(queued: bool) -> (AtomicState, u32) {
        let state = AtomicState::default();
        let generation = state.fill(queued);
        if !queued {
            assert_eq!(state.end_asleep(), AfterRun::Asleep);
        }
        (state, generation)
    }

    const PLAIN: RunStart = RunStart {
        generation: 1,
        cancelled: false,
        awaited: false,
        last: false,
    };

    #[test]
    fn wake_queues_a_sleeping_task_once() {
        let (state, generation) = filled(false);
        assert_eq!(state.wake(generation), PostResult::Queue);
        assert_eq!(state.wake(generation), PostResult::Noted);
        assert_eq!(state.begin(), PLAIN);
        assert_eq!(state.end_asleep(), AfterRun::Asleep);
        assert_eq!(state.load().phase(), Some(TaskPhase::Asleep));
    }

    #[test]
    fn wake_during_a_run_causes_another_run() {
        let (state, generation) = filled(true);
        assert_eq!(state.begin(), PLAIN);
        assert_eq!(state.wake(generation), PostResult::Noted);
        assert_eq!(state.end_asleep(), AfterRun::Queue);
        assert_eq!(state.begin(), PLAIN);
        assert_eq!(state.end_asleep(), AfterRun::Asleep);
    }

    #[test]
    fn cancelled_task_does_not_run_again_and_cancel_succeeds_once() {
        let (state, generation) = filled(true);
        assert_eq!(state.begin(), PLAIN);
        assert_eq!(state.cancel(generation), PostResult::Noted);
        assert_eq!(state.cancel(generation), PostResult::Gone);
        assert_eq!(state.wake(generation), PostResult::Gone);
        assert_eq!(state.end_again(), AfterRun::Dead);
        let (state, generation) = filled(true);
        assert_eq!(state.cancel(generation), PostResult::Noted);
        assert_eq!(state.wake(generation), PostResult::Gone);
        assert!(state.begin().cancelled);
        let (state, generation) = filled(false);
        assert_eq!(state.cancel(generation), PostResult::Queue);
        assert!(state.begin().cancelled);
    }

    #[test]
    fn id_of_an_earlier_generation_matches_nothing() {
        let (state, old) = filled(true);
        state.begin();
        assert!(!state.free());
        assert_eq!(state.wake(old), PostResult::Gone);
        let new = state.fill(false);
        assert_eq!(state.end_asleep(), AfterRun::Asleep);
        assert_ne!(old, new);
        assert_eq!(state.wake(old), PostResult::Gone);
        assert_eq!(state.cancel(old), PostResult::Gone);
        assert!(!state.claim_sleeping(old));
        assert_eq!(state.wake(new), PostResult::Queue);
    }

    #[test]
    fn timer_ends_only_the_sleep_that_it_has_read() {
        let (state, generation) = filled(false);
        let seen = state.load();
        assert!(state.claim_sleeping(generation));
        assert!(!state.wake_sleep(seen));
        assert_eq!(state.end_asleep(), AfterRun::Asleep);
        assert!(!state.wake_sleep(seen));
        let seen = state.load();
        assert!(state.wake_sleep(seen));
        assert!(!state.wake_sleep(seen));
        assert!(!state.claim_sleeping(generation));
    }

    #[test]
    fn wake_during_a_change_of_the_deadline_is_not_lost() {
        let (state, generation) = filled(false);
        assert!(state.claim_sleeping(generation));
        assert_eq!(state.wake(generation), PostResult::Noted);
        assert_eq!(state.end_asleep(), AfterRun::Queue);
        assert_eq!(state.begin(), PLAIN);
        assert_eq!(state.end_asleep(), AfterRun::Asleep);
        assert!(state.claim_sleeping(generation));
        assert_eq!(state.cancel(generation), PostResult::Noted);
        assert_eq!(state.end_asleep(), AfterRun::Dead);
        state.queue_dead();
        assert!(state.begin().cancelled);
    }

    #[test]
    fn last_run_and_awaited_run_are_flagged_at_the_start() {
        let (state, generation) = filled(false);
        assert_eq!(state.wake_awaited(generation), PostResult::Queue);
        assert_eq!(state.wake_for_last_run(generation), PostResult::Noted);
        let begun = state.begin();
        assert!(begun.awaited && begun.last && !begun.cancelled);
        assert_eq!(state.wake_awaited(generation), PostResult::Noted);
        assert!(state.free());
    }

    #[test]
    fn change_counter_wraps_without_touching_other_bits() {
        assert_eq!(next_change(CHANGES | 7), 7);
        assert_eq!(
            next_change(3 << GENERATION_SHIFT | 5),
            3 << GENERATION_SHIFT | CHANGE | 5
        );
    }
}
