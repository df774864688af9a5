//! Synchronisation primitives of the standard library, or of the model checker under `--cfg kedge_model`.

#[cfg(kedge_model)]
use shuttle as primitives;
#[cfg(not(kedge_model))]
use std as primitives;

pub(crate) use primitives::sync::MutexGuard;
pub(crate) use primitives::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
pub(crate) use primitives::thread::{self, Thread};
pub(crate) use primitives::thread_local;
use std::time::Duration;

/// A mutex without poisoning. No code panics while it holds one, as tasks run without a lock.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(primitives::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(primitives::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A condition variable for use with [`Mutex`].
#[derive(Debug, Default)]
pub(crate) struct Condvar(primitives::sync::Condvar);

impl Condvar {
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0
            .wait(guard)
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Parks the thread for at most `time`.
pub(crate) fn park_timeout(time: Duration) {
    #[cfg(not(kedge_model))]
    thread::park_timeout(time);
    // In the model, time passes with each reading of the clock.
    #[cfg(kedge_model)]
    {
        let _ = time;
        thread::yield_now();
    }
}

/// One iteration of a loop that spins for another thread.
pub(crate) fn relax() {
    #[cfg(not(kedge_model))]
    std::hint::spin_loop();
    #[cfg(kedge_model)]
    thread::yield_now();
}
