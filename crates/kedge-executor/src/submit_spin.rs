//! Spinning after a submission, for threads that wait for each result.
//!
//! A thread that submits a short closure and waits for it, for example with a condition variable, is asleep before the
//! result is there. Waking it takes several times as long as the closure. If the thread spins for the end of the
//! closure, it need not sleep. That only pays off for threads that wait for each result before they submit more. So one
//! in [`PROBE_EVERY`] submissions is a probe, which finds out whether the thread does.
//!
//! A thread whose spins succeed never sleeps. With as many processors as the searcher of the pool and such a thread need, the
//! other submitting threads share the searcher's processor: the system wakes them there, because the other one is never
//! idle, and each of their results takes two switches of threads. So the thread sleeps for [`GIVE_WAY`] after
//! [`TURN_RESULTS`] results, if other threads have submitted closures meanwhile. One of them takes its processor.

use crate::backoff::AttemptBackoff;
use crate::one_shot::RunOnce;
use crate::pool::PoolShared;
use crate::sync::{park_timeout, thread_local};
use std::cell::Cell;
use std::ptr;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Number of submissions for each probe of the thread's behaviour.
const PROBE_EVERY: u32 = 256;
/// Number of results without a sleep after which a thread gives way to others, about 0.2 ms.
const TURN_RESULTS: u32 = 512;
/// The time for which a thread gives way. Another thread wakes up within it.
const GIVE_WAY: Duration = Duration::from_micros(50);

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
    /// Number of successful spins since the thread last slept.
    turn: u32,
    /// `true` if another thread has submitted closures to the same pool since then.
    has_rivals: bool,
}

/// The action after a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterSubmit {
    Return,
    /// Return to the caller. The submitted closure is the probe.
    Probe,
    Spin,
    /// Sleep for a moment.
    GiveWay,
}

impl SubmitPattern {
    const fn new() -> Self {
        Self {
            waits: false,
            since_probe: 0,
            backoff: AttemptBackoff::new(),
            turn: 0,
            has_rivals: false,
        }
    }

    /// Records a submission. `is_rival` is `true` if another thread has submitted a closure since the last one of this
    /// thread. `probe_is_over` returns `true` if the probe has run. It is called at the second submission
    /// after the probe: a waiting thread has the results of both earlier ones by then, whereas right after the probe's
    /// result its worker may not have marked it as over yet.
    fn record_submission(
        &mut self,
        is_rival: bool,
        probe_is_over: impl FnOnce() -> bool,
    ) -> AfterSubmit {
        self.has_rivals |= is_rival;
        let since_probe = self.since_probe;
        self.since_probe = (since_probe + 1) % PROBE_EVERY;
        match since_probe {
            0 => return AfterSubmit::Probe,
            1 => return AfterSubmit::Return,
            2 => self.waits = probe_is_over(),
            _ => {}
        }
        if !self.waits || !self.backoff.try_now() {
            return AfterSubmit::Return;
        }
        if self.turn >= TURN_RESULTS && self.has_rivals {
            self.end_turn();
            return AfterSubmit::GiveWay;
        }
        AfterSubmit::Spin
    }

    /// Records the result of a spin.
    fn record_spin(&mut self, found: bool) {
        self.backoff.note(found);
        if found {
            self.turn = self.turn.saturating_add(1);
        } else {
            // The thread sleeps now.
            self.end_turn();
        }
    }

    fn end_turn(&mut self) {
        self.turn = 0;
        self.has_rivals = false;
    }
}

/// Spins for the end of a short closure that the calling thread has submitted to a pool, if the thread waits for its
/// results. Returns `true` if it spun or slept.
pub(crate) fn spin_for_result<J: RunOnce + 'static>(pool: &PoolShared, job: &Arc<J>) -> bool {
    // The thread-local variables are gone while the thread ends.
    let Ok((mut habit, thread)) = PATTERN.try_with(|cell| (cell.get(), ptr::from_ref(cell).addr()))
    else {
        return false;
    };
    let then = habit.record_submission(pool.note_submitter(thread), || {
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
        AfterSubmit::Spin => habit.record_spin(job.spin_until_over()),
        AfterSubmit::GiveWay => park_timeout(GIVE_WAY),
    }
    let _ = PATTERN.try_with(|cell| cell.set(habit));
    matches!(then, AfterSubmit::Spin | AfterSubmit::GiveWay)
}

#[cfg(all(test, not(kedge_model)))]
mod tests {
    use super::*;
    use crate::Pool;
    use crate::one_shot::RunOutcome;
    use std::collections::VecDeque;
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

    fn pool() -> PoolShared {
        PoolShared::new(Pool::NonIo)
    }

    /// Returns the number of spins of a new thread.
    fn looks(submissions: u32, over: impl Fn(u32) -> bool) -> u32 {
        renew();
        let pool = pool();
        let job = |number| {
            Arc::new(FakeClosure {
                over: over(number),
                ..FakeClosure::default()
            })
        };
        let jobs: Vec<_> = (0..submissions).map(job).collect();
        let looks = |job: &FakeClosure| job.looks.load(Ordering::Relaxed);
        for job in &jobs {
            let looked = spin_for_result(&pool, job);
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
        let pool = pool();
        let submit = || spin_for_result(&pool, &Arc::new(FakeClosure::default()));
        assert_eq!([submit(), submit(), submit()], [false, false, true]);
    }

    /// Results of many threads on two processors. The searcher has one; the thread on the other one, whose spins succeed,
    /// keeps it until it sleeps. The others get a result now and then, asleep.
    fn results_by_thread(threads: usize, steps: u32) -> Vec<u32> {
        let mut patterns = vec![SubmitPattern::new(); threads];
        let mut results = vec![0; threads];
        let mut others: VecDeque<usize> = (1..threads).collect();
        let mut holder = 0;
        let mut last = holder;
        for step in 0..steps {
            // Every tenth result is that of another thread.
            let is_other = step % 10 == 9 && !others.is_empty();
            let thread = if is_other { others[0] } else { holder };
            let pattern = &mut patterns[thread];
            let then = pattern.record_submission(last != thread, || true);
            last = thread;
            results[thread] += 1;
            if is_other {
                pattern.end_turn();
                others.rotate_left(1);
            } else if then == AfterSubmit::GiveWay {
                others.push_back(thread);
                holder = others.pop_front().expect("it has rivals");
            } else if then == AfterSubmit::Spin {
                pattern.record_spin(true);
            }
        }
        results
    }

    /// In a short run the least-served of 16 threads got nothing.
    #[test]
    fn thread_whose_spins_succeed_gives_way_to_others() {
        for threads in [2, 4, 16] {
            let results = results_by_thread(threads, 80_000);
            let (least, most) = (results.iter().min(), results.iter().max());
            let (least, most) = (*least.expect("one"), *most.expect("one"));
            assert!(least * 2 > most, "{results:?}");
        }
    }

    #[test]
    fn thread_without_rivals_never_gives_way() {
        let mut pattern = SubmitPattern::new();
        for _ in 0..100 * PROBE_EVERY + 3 {
            match pattern.record_submission(false, || true) {
                AfterSubmit::GiveWay => panic!("nobody waits"),
                AfterSubmit::Spin => pattern.record_spin(true),
                _ => {}
            }
        }
        // A rival that comes later need not wait for another turn.
        let then = pattern.record_submission(true, || true);
        assert_eq!(then, AfterSubmit::GiveWay);
    }
}
