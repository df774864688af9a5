//! A load that keeps every core busy while a cell runs.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::place::{allowed_cores, pin_to};

/// One busy thread per core, or none. They end when this is dropped.
#[derive(Debug)]
pub struct Burners {
    stop: Arc<AtomicBool>,
    threads: Vec<(i32, JoinHandle<()>)>,
}

impl Burners {
    /// Starts one thread on each core that the process may use, if `busy`.
    #[must_use]
    pub fn start(busy: bool) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = allowed_cores()
            .into_iter()
            .filter(|_| busy)
            .map(|core| {
                let (tell, told) = mpsc::channel();
                let stop = Arc::clone(&stop);
                let thread = std::thread::spawn(move || {
                    pin_to(core);
                    let id = rustix::thread::gettid().as_raw_nonzero().get();
                    tell.send(id).expect("the starter waits");
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
                (told.recv().expect("the thread tells its id"), thread)
            })
            .collect();
        Self { stop, threads }
    }

    /// Returns the processor time that they have used so far.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        self.threads.iter().map(|(id, _)| thread_cpu(*id)).sum()
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for (_, thread) in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Returns the processor time of a thread of this process; zero if it has ended.
fn thread_cpu(id: i32) -> Duration {
    let text = fs::read_to_string(format!("/proc/self/task/{id}/schedstat")).unwrap_or_default();
    let nanoseconds = text
        .split_whitespace()
        .next()
        .and_then(|word| word.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}
