//! What a task is to both re-created pools.

/// The run function of a task; it says what comes next.
pub(crate) type Body = Box<dyn FnMut() -> Next + Send>;

/// What a run asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The task is at its end.
    Done,
    /// Run again when woken, or when the time of a snooze has come.
    Sleep,
}

/// A kind is an index into the pool's table of statistics and priorities.
pub(crate) type Kind = u8;

/// Work that runs once.
pub(crate) const ONE_SHOT: Kind = 0;
/// Work that sleeps and is woken.
pub(crate) const LONG_LIVED: Kind = 1;
/// As many kinds as there are.
pub(crate) const KINDS: usize = 2;
/// Lower comes first; the benchmarks use one priority at a time.
pub(crate) const PRIORITIES: [u8; KINDS] = [1, 1];

/// The owner of all tasks here.
pub(crate) const BENCH: u32 = 1;

/// A body that runs once.
pub(crate) fn once<J: FnOnce() + Send + 'static>(job: J) -> Body {
    let mut job = Some(job);
    Box::new(move || {
        if let Some(job) = job.take() {
            job();
        }
        Next::Done
    })
}

/// A body that sleeps for ever after each run.
pub(crate) fn sleeper<R: FnMut() + Send + 'static>(mut run: R) -> Body {
    Box::new(move || {
        run();
        Next::Sleep
    })
}
