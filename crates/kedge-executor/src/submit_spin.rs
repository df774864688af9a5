//! Spinning after a submission, for threads that wait for each result.
//!
//! A thread that submits a short closure and waits for it, for example with a condition variable, is asleep before the
//! result is there. Waking it takes several times as long as the closure. If the thread spins for the end of the
//! closure, it need not sleep. That only pays off for threads that wait for each result before they submit more. So one
//! in [`PROBE_EVERY`] submissions is a probe, which finds out whether the thread does.

use crate::backoff::AttemptBackoff;
use crate::one_shot::RunOnce;
use crate::sync::thread_local;
use std::cell::Cell;
use std::sync::{Arc, Weak};

/// Number of submissions for each probe of the thread's behaviour.
const PROBE_EVERY: u32 = 256;

thread_local! {
    static PATTERN: Cell<SubmitPattern> = const { Cell::new(SubmitPattern::new()) };
    static PROBE: Cell<Option<Weak<dyn RunOnce>>> = const { Cell::new(None) };
}

/// The observed behaviour of a submitting thread.
#[derive(Clone, Copy, Debug)]
struct SubmitPattern {
    /// `true` if the thread waits for each result.
    waits: bool,
    /// Number of submissions since the probe, including it.
    since_probe: u32,
    /// Backoff after unsuccessful spins.
    backoff: AttemptBackoff,
}

/// The action after a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterSubmit {
    Return,
    /// Return to the caller. The submitted closure is the probe.
    Probe,
    Spin,
}

impl SubmitPattern {
    const fn new() -> Self {
        Self {
            waits: false,
            since_probe: 0,
            backoff: AttemptBackoff::new(),
        }
    }

    /// Records a submission. `probe_is_over` returns `true` if the probe has run. It is called at the second submission
    /// after the probe: a waiting thread has the results of both earlier ones by then, whereas right after the probe's
    /// result its worker may not have marked it as over yet.
    fn record_submission(&mut self, probe_is_over: impl FnOnce() -> bool) -> AfterSubmit {
        let since_probe = self.since_probe;
        self.since_probe = (since_probe + 1) % PROBE_EVERY;
        match since_probe {
            0 => return AfterSubmit::Probe,
            1 => return AfterSubmit::Return,
            2 => self.waits = probe_is_over(),
            _ => {}
        }
        if self.waits && self.backoff.try_now() {
            AfterSubmit::Spin
        } else {
            AfterSubmit::Return
        }
    }
}

/// Spins for the end of a short closure that the calling thread has submitted, if the thread waits for its results.
/// Returns `true` if it spun.
pub(crate) fn spin_for_result<J: RunOnce + 'static>(job: &Arc<J>) -> bool {
    // The thread-local variables are gone while the thread ends.
    let Ok(mut habit) = PATTERN.try_with(Cell::get) else {
        return false;
    };
    let then = habit.record_submission(|| {
        let probe = PROBE.try_with(Cell::take).ok().flatten();
        let job = probe.and_then(|probe| probe.upgrade());
        job.is_none_or(|job| job.is_over())
    });
    match then {
        AfterSubmit::Return => {}
        AfterSubmit::Probe => {
            let job: Arc<dyn RunOnce> = job.clone();
            // A missing variable counts as a probe that is over.
            let _ = PROBE.try_with(|probe| probe.set(Some(Arc::downgrade(&job))));
        }
        AfterSubmit::Spin => habit.backoff.note(job.spin_until_over()),
    }
    let _ = PATTERN.try_with(|cell| cell.set(habit));
    then == AfterSubmit::Spin
}

#[cfg(all(test, not(kedge_model)))]
mod tests {
    use super::*;
    use crate::one_shot::RunOutcome;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A closure that is over or not, as the test requires.
    #[derive(Default)]
    struct FakeClosure {
        over: bool,
        looks: AtomicU32,
    }

    impl RunOnce for FakeClosure {
        fn run(&self) -> RunOutcome {
            unreachable!("nobody runs it")
        }

        fn cancel(&self) {}

        fn is_over(&self) -> bool {
            self.over
        }

        fn spin_until_over(&self) -> bool {
            self.looks.fetch_add(1, Ordering::Relaxed);
            self.over
        }
    }

    /// Resets the calling thread to the state of a new one.
    fn renew() {
        PATTERN.set(SubmitPattern::new());
        PROBE.take();
    }

    /// Returns the number of spins of a new thread.
    fn looks(submissions: u32, over: impl Fn(u32) -> bool) -> u32 {
        renew();
        let job = |number| {
            Arc::new(FakeClosure {
                over: over(number),
                ..FakeClosure::default()
            })
        };
        let jobs: Vec<_> = (0..submissions).map(job).collect();
        let looks = |job: &FakeClosure| job.looks.load(Ordering::Relaxed);
        for job in &jobs {
            let looked = spin_for_result(job);
            assert_eq!(looked, looks(job) == 1);
        }
        jobs.iter().map(|job| looks(job)).sum()
    }

    #[test]
    fn waiting_thread_spins_except_around_probes() {
        assert_eq!(looks(3, |_| true), 1);
        assert_eq!(looks(10 * PROBE_EVERY, |_| true), 10 * (PROBE_EVERY - 2));
    }

    #[test]
    fn thread_that_does_not_wait_never_spins() {
        assert_eq!(looks(10 * PROBE_EVERY, |_| false), 0);
    }

    #[test]
    fn change_of_behaviour_is_detected_at_the_next_probe() {
        let waits_later = |number| number >= PROBE_EVERY;
        assert_eq!(looks(2 * PROBE_EVERY, waits_later), PROBE_EVERY - 2);
        let waits_first = |number| number < PROBE_EVERY;
        assert_eq!(looks(2 * PROBE_EVERY, waits_first), PROBE_EVERY - 2);
    }

    /// Probes are over in time and nothing else is, as when the pool's threads sleep.
    #[test]
    fn unsuccessful_spins_become_rare() {
        let rare = looks(10 * PROBE_EVERY, |number| number % PROBE_EVERY == 0);
        assert!((10..80).contains(&rare), "{rare}");
    }

    /// The closure may be dropped before the probe is checked.
    #[test]
    fn dropped_closure_counts_as_over() {
        renew();
        let submit = || spin_for_result(&Arc::new(FakeClosure::default()));
        assert_eq!([submit(), submit(), submit()], [false, false, true]);
    }
}
