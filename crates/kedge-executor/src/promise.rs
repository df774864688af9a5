//! A value that one thread sets and another waits for, by spinning, parking or polling.

use crate::sync::{AtomicBool, Mutex, Ordering, Thread, relax, thread};
use std::task::{Poll, Waker};

/// Number of iterations of the spinning loop before the waiter parks, about 6 us. A thread that is running on a core
/// without a shared cache responds within this time.
const SPINS: u32 = if cfg!(kedge_model) { 2 } else { 256 };

#[derive(Debug)]
pub(crate) struct Promise<T> {
    kept: AtomicBool,
    inner: Mutex<PromiseState<T>>,
}

#[derive(Debug)]
struct PromiseState<T> {
    value: Option<T>,
    waiter: Option<PromiseWaiter>,
}

#[derive(Debug)]
enum PromiseWaiter {
    Thread(Thread),
    Task(Waker),
}

impl PromiseWaiter {
    fn wake(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            Self::Task(waker) => waker.wake(),
        }
    }
}

impl<T> Promise<T> {
    pub(crate) fn new() -> Self {
        Self {
            kept: AtomicBool::new(false),
            inner: Mutex::new(PromiseState {
                value: None,
                waiter: None,
            }),
        }
    }

    /// Sets the value. Called once.
    pub(crate) fn set(&self, value: T) {
        let waiter = {
            let mut inner = self.inner.lock();
            inner.value = Some(value);
            inner.waiter.take()
        };
        self.kept.store(true, Ordering::Release);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.kept.load(Ordering::Acquire)
    }

    /// Waits for the value. One waiter may call it, once. With `soon`, the waiter spins before it parks.
    pub(crate) fn wait(&self, soon: bool) -> T {
        if soon {
            self.look();
        }
        loop {
            {
                let mut inner = self.inner.lock();
                if let Some(value) = inner.value.take() {
                    return value;
                }
                inner.waiter = Some(PromiseWaiter::Thread(thread::current()));
            }
            thread::park();
        }
    }

    /// Spins briefly for the value. Returns `true` if it is set.
    pub(crate) fn look(&self) -> bool {
        for _ in 0..SPINS {
            if self.is_set() {
                return true;
            }
            relax();
        }
        false
    }

    pub(crate) fn poll(&self, waker: &Waker) -> Poll<T> {
        let mut inner = self.inner.lock();
        match inner.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                inner.waiter = Some(PromiseWaiter::Task(waker.clone()));
                Poll::Pending
            }
        }
    }
}
