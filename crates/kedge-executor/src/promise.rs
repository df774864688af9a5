//! A value that one thread makes and another waits for: by spinning a little, by parking, or by polling.

use crate::sync::{AtomicBool, Mutex, Ordering, Thread, relax, thread};
use std::task::{Poll, Waker};

/// Turns of the waiting loop before the thread parks. About 6 us: the answer of a thread that is at work already, on a core
/// that shares no cache with the waiting one.
const SPINS: u32 = if cfg!(kedge_model) { 2 } else { 256 };

#[derive(Debug)]
pub(crate) struct Promise<T> {
    kept: AtomicBool,
    inner: Mutex<Inner<T>>,
}

#[derive(Debug)]
struct Inner<T> {
    value: Option<T>,
    waiter: Option<Waiter>,
}

#[derive(Debug)]
enum Waiter {
    Thread(Thread),
    Task(Waker),
}

impl Waiter {
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
            inner: Mutex::new(Inner {
                value: None,
                waiter: None,
            }),
        }
    }

    /// Gives the value, once.
    pub(crate) fn keep(&self, value: T) {
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

    pub(crate) fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Acquire)
    }

    /// Waits for the value. For one waiter, once. `soon` says that the value is worth spinning for.
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
                inner.waiter = Some(Waiter::Thread(thread::current()));
            }
            thread::park();
        }
    }

    /// Waits for the value for a moment, without sleeping. Returns whether it is there.
    pub(crate) fn look(&self) -> bool {
        for _ in 0..SPINS {
            if self.is_kept() {
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
                inner.waiter = Some(Waiter::Task(waker.clone()));
                Poll::Pending
            }
        }
    }
}
