//! Whether a thread that submits gives the pool a moment before it goes on.
//!
//! A thread that submits something quick and waits for it by means of its own, a condition variable say, is asleep before
//! the result is there, and waking it costs several times what the work does. If it looks for the end of the work for a
//! moment, it need not sleep. That is for threads that wait for each result before they submit more: others would only
//! lose time. So once in [`PROBE_EVERY`] submissions it is looked which kind of thread it is.

use crate::backoff::Backoff;
use crate::job::Job;
use crate::sync::thread_local;
use std::cell::Cell;
use std::sync::{Arc, Weak};

/// So many submissions have one after which it is looked whether the thread waits.
const PROBE_EVERY: u32 = 256;

thread_local! {
    static HABIT: Cell<Habit> = const { Cell::new(Habit::new()) };
    static PROBE: Cell<Option<Weak<dyn Job>>> = const { Cell::new(None) };
}

/// What a thread that submits is known to do.
#[derive(Clone, Copy, Debug)]
struct Habit {
    /// It waits for what it submits.
    waits: bool,
    /// Submissions since the one it is probed with, that one included.
    since_probe: u32,
    /// Of moments that were given in vain.
    backoff: Backoff,
}

/// What follows a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    GoOn,
    /// Goes on, and this is the work with which the thread is probed.
    Probe,
    GiveAMoment,
}

impl Habit {
    const fn new() -> Self {
        Self {
            waits: false,
            since_probe: 0,
            backoff: Backoff::new(),
        }
    }

    /// The thread has submitted more. `probe_is_over` tells of the work it is probed with: a thread that waits has had
    /// that result, and the next. After the first, the one that gives it may still be about to say that it is over.
    fn submits(&mut self, probe_is_over: impl FnOnce() -> bool) -> Then {
        let since_probe = self.since_probe;
        self.since_probe = (since_probe + 1) % PROBE_EVERY;
        match since_probe {
            0 => return Then::Probe,
            1 => return Then::GoOn,
            2 => self.waits = probe_is_over(),
            _ => {}
        }
        if self.waits && self.backoff.try_now() {
            Then::GiveAMoment
        } else {
            Then::GoOn
        }
    }
}

/// The calling thread has submitted something quick. If it is one that waits, looks for the end of that for a moment.
/// Returns whether it looked.
pub(crate) fn give_a_moment<J: Job + 'static>(job: &Arc<J>) -> bool {
    // The thread's variables are gone while it ends.
    let Ok(mut habit) = HABIT.try_with(Cell::get) else {
        return false;
    };
    let then = habit.submits(|| {
        let probe = PROBE.try_with(Cell::take).ok().flatten();
        let job = probe.and_then(|probe| probe.upgrade());
        job.is_none_or(|job| job.is_over())
    });
    match then {
        Then::GoOn => {}
        Then::Probe => {
            let job: Arc<dyn Job> = job.clone();
            // If the variable is gone, no probe is a probe that is over.
            let _ = PROBE.try_with(|probe| probe.set(Some(Arc::downgrade(&job))));
        }
        Then::GiveAMoment => habit.backoff.note(job.look_for_end()),
    }
    let _ = HABIT.try_with(|cell| cell.set(habit));
    then == Then::GiveAMoment
}

#[cfg(all(test, not(kedge_model)))]
mod tests {
    use super::*;
    use crate::job::Outcome;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Work that is over, or not, whenever somebody looks.
    #[derive(Default)]
    struct Fake {
        over: bool,
        looks: AtomicU32,
    }

    impl Job for Fake {
        fn run(&self) -> Outcome {
            unreachable!("nobody runs it")
        }

        fn cancel(&self) {}

        fn is_over(&self) -> bool {
            self.over
        }

        fn look_for_end(&self) -> bool {
            self.looks.fetch_add(1, Ordering::Relaxed);
            self.over
        }
    }

    /// Makes a new thread of the calling one.
    fn renew() {
        HABIT.set(Habit::new());
        PROBE.take();
    }

    /// How often a new thread looks for the end of what it submits.
    fn looks(submissions: u32, over: impl Fn(u32) -> bool) -> u32 {
        renew();
        let job = |number| {
            Arc::new(Fake {
                over: over(number),
                ..Fake::default()
            })
        };
        let jobs: Vec<_> = (0..submissions).map(job).collect();
        let looks = |job: &Fake| job.looks.load(Ordering::Relaxed);
        for job in &jobs {
            let looked = give_a_moment(job);
            assert_eq!(looked, looks(job) == 1);
        }
        jobs.iter().map(|job| looks(job)).sum()
    }

    #[test]
    fn who_waits_looks_every_time_but_when_probed() {
        assert_eq!(looks(3, |_| true), 1);
        assert_eq!(looks(10 * PROBE_EVERY, |_| true), 10 * (PROBE_EVERY - 2));
    }

    #[test]
    fn who_goes_on_never_looks() {
        assert_eq!(looks(10 * PROBE_EVERY, |_| false), 0);
    }

    #[test]
    fn a_change_of_habit_is_seen_at_the_next_probe() {
        let waits_later = |number| number >= PROBE_EVERY;
        assert_eq!(looks(2 * PROBE_EVERY, waits_later), PROBE_EVERY - 2);
        let waits_first = |number| number < PROBE_EVERY;
        assert_eq!(looks(2 * PROBE_EVERY, waits_first), PROBE_EVERY - 2);
    }

    /// The probes are over in time, and nothing else is: as when the pool's threads sleep.
    #[test]
    fn moments_in_vain_become_rare() {
        let rare = looks(10 * PROBE_EVERY, |number| number % PROBE_EVERY == 0);
        assert!((10..80).contains(&rare), "{rare}");
    }

    /// A job may be gone altogether when the probe is looked at.
    #[test]
    fn what_is_gone_is_over() {
        renew();
        let submit = || give_a_moment(&Arc::new(Fake::default()));
        assert_eq!([submit(), submit(), submit()], [false, false, true]);
    }
}
