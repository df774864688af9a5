//! The threads of an executor: handles to join them, and the switch of the watchdog. `worker_threads` has their loops.

use crate::config::ExecutorConfig;
use crate::pool::PoolShared;
use crate::sync::{AtomicBool, Mutex, Ordering, Thread, thread};
use std::sync::OnceLock;

#[derive(Debug)]
pub(crate) struct Workers {
    pub(crate) config: ExecutorConfig,
    pub(crate) threads: Mutex<Vec<thread::JoinHandle<()>>>,
    pub(crate) timer: OnceLock<Thread>,
    pub(crate) watching: AtomicBool,
}

impl Workers {
    pub(crate) fn new(config: ExecutorConfig) -> Self {
        Self {
            config,
            threads: Mutex::default(),
            timer: OnceLock::new(),
            watching: AtomicBool::new(false),
        }
    }

    /// Activates the watchdog: a task was queued, and the thread that should take it may be delayed.
    pub(crate) fn request_watchdog(&self) {
        if !self.watching.load(Ordering::SeqCst) && !self.watching.swap(true, Ordering::SeqCst) {
            self.wake_timer();
        }
    }

    /// Makes the threads of all pools end after their current run.
    pub(crate) fn retire(&self, pools: &[PoolShared]) {
        // Under the lock, because a thread that starts others at the same time would not know that none are allowed.
        let threads = self.threads.lock();
        for pool in pools {
            pool.resize(0);
        }
        drop(threads);
        self.wake_timer();
    }

    pub(crate) fn wake_timer(&self) {
        if let Some(timer) = self.timer.get() {
            timer.unpark();
        }
    }
}
