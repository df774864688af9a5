//! The state of one task in one atomic word: who may run it, and what was asked of it meanwhile.
//!
//! Invariants:
//! * A task is in the run queue of its pool exactly while it is `QUEUED`: who moves it there queues it, once.
//! * Only who moved it from `QUEUED` to `RUNNING` runs it, and moves it on: so it never runs on two threads at once.
//! * A wake of a running task sets `WOKEN`, which the end of the run turns into another run: so no wake is lost.
//! * `CANCELLED` never goes away: the task is dropped by who takes it from the queue, or at the end of its run.
//! * The generation changes when the place is given to another task: an old id finds nothing.
//!
//! Layout: generation (32 bits) | changes (24 bits) | flags (8 bits). `changes` counts going to sleep, so that a timer
//! which has looked at an earlier sleep does not end a later one.

use crate::sync::{AtomicU64, Ordering};

const PHASE: u64 = 0b11;
/// Nobody's.
const FREE: u64 = 0;
/// Sleeps until its deadline or a wake.
const ASLEEP: u64 = 1;
/// In the run queue.
const QUEUED: u64 = 2;
/// On a thread.
const RUNNING: u64 = 3;

/// Woken while it ran.
const WOKEN: u64 = 1 << 2;
/// Not to run again.
const CANCELLED: u64 = 1 << 3;
/// The next run is its last.
const LAST: u64 = 1 << 4;
/// Someone waits for its next run to begin.
const AWAITED: u64 = 1 << 5;

const FLAGS: u64 = 0xff;
const CHANGE: u64 = 1 << 8;
const CHANGES: u64 = 0x00ff_ffff << 8;
const GENERATION_SHIFT: u32 = 32;

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Asleep,
    Queued,
    Running,
}

/// The word as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View(u64);

impl View {
    pub(crate) fn generation(self) -> u32 {
        (self.0 >> GENERATION_SHIFT) as u32
    }

    /// None when the place is free.
    pub(crate) fn phase(self) -> Option<Phase> {
        match self.0 & PHASE {
            FREE => None,
            ASLEEP => Some(Phase::Asleep),
            QUEUED => Some(Phase::Queued),
            _ => Some(Phase::Running),
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

/// What a wake or a cancellation came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    /// There is no such task, or it is cancelled.
    Gone,
    /// It is now `QUEUED`: the caller puts it into the run queue.
    Queue,
    /// It is in the run queue, or its run will be followed by another.
    Noted,
}

/// How a run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    /// Of the task.
    pub(crate) generation: u32,
    /// It must not run: drop it.
    pub(crate) cancelled: bool,
    /// Someone waits to hear that it began.
    pub(crate) awaited: bool,
    /// It is its last run.
    pub(crate) last: bool,
}

/// What follows a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It sleeps.
    Asleep,
    /// It is `QUEUED`: the caller puts it into the run queue.
    Queue,
    /// It is done: drop it, then free the place.
    Dead,
}

#[derive(Debug, Default)]
pub(crate) struct State(AtomicU64);

impl State {
    pub(crate) fn load(&self) -> View {
        View(self.0.load(Ordering::SeqCst))
    }

    /// Applies `change` until it holds against other threads, or until it says that there is nothing to change.
    fn update(&self, change: impl Fn(View) -> Option<u64>) -> Result<View, View> {
        self.0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| {
                change(View(word))
            })
            .map(View)
            .map_err(View)
    }

    /// Fills a free place, whose owner the caller is: with a task that he puts into the run queue, or, if it is not to
    /// be `queued`, takes to its sleep with [`Self::end_asleep`]. Returns the generation of the task.
    pub(crate) fn fill(&self, queued: bool) -> u32 {
        let generation = self.load().generation().wrapping_add(1);
        let phase = if queued { QUEUED } else { RUNNING };
        let word = u64::from(generation) << GENERATION_SHIFT | phase;
        self.0.store(word, Ordering::SeqCst);
        generation
    }

    /// Makes it run once more: now if it sleeps, after its run if it runs. With `flag` something else is noted too.
    fn post(&self, generation: u32, flag: u64) -> Posted {
        let posted = self.update(|view| {
            if view.generation() != generation || view.is_cancelled() || view.is(FREE) {
                return None;
            }
            match view.0 & PHASE {
                ASLEEP => Some(view.with_phase(QUEUED) | flag),
                // Written even if it is the same: only so does the run that comes see what the caller wrote before.
                QUEUED => Some(view.0 | flag),
                _ => Some(view.0 | WOKEN | flag),
            }
        });
        match posted {
            Ok(before) if before.is(ASLEEP) => Posted::Queue,
            Ok(_) => Posted::Noted,
            Err(_) => Posted::Gone,
        }
    }

    pub(crate) fn wake(&self, generation: u32) -> Posted {
        self.post(generation, 0)
    }

    /// As [`Self::wake`], and the beginning of that run is told to who waits.
    pub(crate) fn wake_awaited(&self, generation: u32) -> Posted {
        self.post(generation, AWAITED)
    }

    /// As [`Self::wake`], and that run is the last.
    pub(crate) fn wake_for_last_run(&self, generation: u32) -> Posted {
        self.post(generation, LAST)
    }

    /// The timer saw the sleep `seen` end. False if that sleep is over already.
    pub(crate) fn wake_sleep(&self, seen: View) -> bool {
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

    /// Takes a sleeper as if it ran, to change its deadline; [`Self::end_asleep`] gives it back. False if it does not
    /// sleep.
    pub(crate) fn take_sleeper(&self, generation: u32) -> bool {
        self.update(|view| {
            let sleeps = view.generation() == generation && view.is(ASLEEP);
            sleeps.then(|| view.with_phase(RUNNING))
        })
        .is_ok()
    }

    /// Hands one that was taken and is cancelled to its pool, to be dropped there.
    pub(crate) fn queue_dead(&self) {
        let _ = self.update(|view| Some(view.with_phase(QUEUED) | CANCELLED));
    }

    /// Takes care that it never begins another run.
    pub(crate) fn cancel(&self, generation: u32) -> Posted {
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
            Ok(view) if view.is(ASLEEP) => Posted::Queue,
            Ok(_) => Posted::Noted,
            Err(_) => Posted::Gone,
        }
    }

    /// Taken from the run queue.
    pub(crate) fn begin(&self) -> Begun {
        let before = self.update(|view| {
            debug_assert!(view.is(QUEUED));
            Some(view.with_phase(RUNNING) & !AWAITED & !WOKEN)
        });
        let (Ok(View(word)) | Err(View(word))) = before;
        Begun {
            generation: View(word).generation(),
            cancelled: word & CANCELLED != 0,
            awaited: word & AWAITED != 0,
            last: word & LAST != 0,
        }
    }

    /// The run is over and the task wants to sleep.
    pub(crate) fn end_asleep(&self) -> Ended {
        self.end(|view| {
            if view.0 & WOKEN != 0 {
                view.with_phase(QUEUED) & !WOKEN
            } else {
                next_change(view.with_phase(ASLEEP))
            }
        })
    }

    /// The run is over and the task wants another.
    pub(crate) fn end_again(&self) -> Ended {
        self.end(|view| view.with_phase(QUEUED) & !WOKEN)
    }

    fn end(&self, next: impl Fn(View) -> u64) -> Ended {
        let mut after = View(0);
        let result = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| {
                after = View(next(View(word)));
                (!View(word).is_cancelled()).then_some(after.0)
            });
        match result {
            Err(_) => Ended::Dead,
            Ok(_) if after.is(ASLEEP) => Ended::Asleep,
            Ok(_) => Ended::Queue,
        }
    }

    /// Gives the place back, whose task was dropped. Returns whether someone waits for another run.
    pub(crate) fn free(&self) -> bool {
        let generation = self.load().generation();
        // Only the flags can have changed meanwhile: nobody but the caller moves it on.
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

    fn filled(queued: bool) -> (State, u32) {
        let state = State::default();
        let generation = state.fill(queued);
        if !queued {
            assert_eq!(state.end_asleep(), Ended::Asleep);
        }
        (state, generation)
    }

    const PLAIN: Begun = Begun {
        generation: 1,
        cancelled: false,
        awaited: false,
        last: false,
    };

    #[test]
    fn a_wake_queues_a_sleeper_once() {
        let (state, generation) = filled(false);
        assert_eq!(state.wake(generation), Posted::Queue);
        assert_eq!(state.wake(generation), Posted::Noted);
        assert_eq!(state.begin(), PLAIN);
        assert_eq!(state.end_asleep(), Ended::Asleep);
        assert_eq!(state.load().phase(), Some(Phase::Asleep));
    }

    #[test]
    fn a_wake_during_a_run_leads_to_another() {
        let (state, generation) = filled(true);
        assert_eq!(state.begin(), PLAIN);
        assert_eq!(state.wake(generation), Posted::Noted);
        assert_eq!(state.end_asleep(), Ended::Queue);
        assert_eq!(state.begin(), PLAIN);
        assert_eq!(state.end_asleep(), Ended::Asleep);
    }

    #[test]
    fn a_cancelled_one_does_not_run_again_and_is_cancelled_once() {
        let (state, generation) = filled(true);
        assert_eq!(state.begin(), PLAIN);
        assert_eq!(state.cancel(generation), Posted::Noted);
        assert_eq!(state.cancel(generation), Posted::Gone);
        assert_eq!(state.wake(generation), Posted::Gone);
        assert_eq!(state.end_again(), Ended::Dead);
        let (state, generation) = filled(true);
        assert_eq!(state.cancel(generation), Posted::Noted);
        assert_eq!(state.wake(generation), Posted::Gone);
        assert!(state.begin().cancelled);
        let (state, generation) = filled(false);
        assert_eq!(state.cancel(generation), Posted::Queue);
        assert!(state.begin().cancelled);
    }

    #[test]
    fn an_old_id_finds_nothing() {
        let (state, old) = filled(true);
        state.begin();
        assert!(!state.free());
        assert_eq!(state.wake(old), Posted::Gone);
        let new = state.fill(false);
        assert_eq!(state.end_asleep(), Ended::Asleep);
        assert_ne!(old, new);
        assert_eq!(state.wake(old), Posted::Gone);
        assert_eq!(state.cancel(old), Posted::Gone);
        assert!(!state.take_sleeper(old));
        assert_eq!(state.wake(new), Posted::Queue);
    }

    #[test]
    fn a_timer_ends_only_the_sleep_that_it_saw() {
        let (state, generation) = filled(false);
        let seen = state.load();
        assert!(state.take_sleeper(generation));
        assert!(!state.wake_sleep(seen));
        assert_eq!(state.end_asleep(), Ended::Asleep);
        assert!(!state.wake_sleep(seen));
        let seen = state.load();
        assert!(state.wake_sleep(seen));
        assert!(!state.wake_sleep(seen));
        assert!(!state.take_sleeper(generation));
    }

    #[test]
    fn a_wake_while_its_deadline_changes_is_kept() {
        let (state, generation) = filled(false);
        assert!(state.take_sleeper(generation));
        assert_eq!(state.wake(generation), Posted::Noted);
        assert_eq!(state.end_asleep(), Ended::Queue);
        assert_eq!(state.begin(), PLAIN);
        assert_eq!(state.end_asleep(), Ended::Asleep);
        assert!(state.take_sleeper(generation));
        assert_eq!(state.cancel(generation), Posted::Noted);
        assert_eq!(state.end_asleep(), Ended::Dead);
        state.queue_dead();
        assert!(state.begin().cancelled);
    }

    #[test]
    fn the_last_run_is_announced_and_awaited_ones_are_told() {
        let (state, generation) = filled(false);
        assert_eq!(state.wake_awaited(generation), Posted::Queue);
        assert_eq!(state.wake_for_last_run(generation), Posted::Noted);
        let begun = state.begin();
        assert!(begun.awaited && begun.last && !begun.cancelled);
        assert_eq!(state.wake_awaited(generation), Posted::Noted);
        assert!(state.free());
    }

    #[test]
    fn changes_wrap_without_touching_the_rest() {
        assert_eq!(next_change(CHANGES | 7), 7);
        assert_eq!(
            next_change(3 << GENERATION_SHIFT | 5),
            3 << GENERATION_SHIFT | CHANGE | 5
        );
    }
}
