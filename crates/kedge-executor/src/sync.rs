//! Where threads meet: the standard library's primitives, or those of the model checker under `--cfg kedge_model`.

#[cfg(kedge_model)]
use shuttle as primitives;
#[cfg(not(kedge_model))]
use std as primitives;

pub(crate) use primitives::sync::MutexGuard;
pub(crate) use primitives::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
pub(crate) use primitives::thread::{self, Thread};
pub(crate) use primitives::thread_local;
use std::time::Duration;

/// A lock that a panic elsewhere does not close: nothing panics while it holds one, as tasks run on no lock.
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

/// To wait for a change of what a [`Mutex`] protects.
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

/// Parks for at most that long.
pub(crate) fn park_timeout(time: Duration) {
    #[cfg(not(kedge_model))]
    thread::park_timeout(time);
    // Time passes whenever somebody looks at the clock.
    #[cfg(kedge_model)]
    {
        let _ = time;
        thread::yield_now();
    }
}

/// One turn of a loop that waits for another thread without sleeping.
pub(crate) fn relax() {
    #[cfg(not(kedge_model))]
    std::hint::spin_loop();
    #[cfg(kedge_model)]
    thread::yield_now();
}
