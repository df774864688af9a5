//! The tasks of both re-created pools.

/// The run function of a task; it returns the next state.
pub(crate) type Body = Box<dyn FnMut() -> Next + Send>;

/// The next state that a run asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The task has ended.
    Done,
    /// The task runs again when it is woken, or at the end of a snooze.
    Sleep,
}

/// An index into the pool's table of statistics and priorities.
pub(crate) type Kind = u8;

/// The kind of work that runs once.
pub(crate) const ONE_SHOT: Kind = 0;
/// The kind of work that sleeps and is woken.
pub(crate) const LONG_LIVED: Kind = 1;
/// The number of kinds.
pub(crate) const KINDS: usize = 2;
/// The priorities of the kinds; lower comes first. The benchmarks use one priority at a time.
pub(crate) const PRIORITIES: [u8; KINDS] = [1, 1];

/// The owner of all tasks here.
pub(crate) const BENCH: u32 = 1;

/// Returns a body that runs once.
pub(crate) fn once<J: FnOnce() + Send + 'static>(job: J) -> Body {
    let mut job = Some(job);
    Box::new(move || {
        if let Some(job) = job.take() {
            job();
        }
        Next::Done
    })
}

/// Returns a body that sleeps for ever after each run.
pub(crate) fn sleeper<R: FnMut() + Send + 'static>(mut run: R) -> Body {
    Box::new(move || {
        run();
        Next::Sleep
    })
}
