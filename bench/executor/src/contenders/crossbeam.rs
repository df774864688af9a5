//! Bare: threads that take boxed closures from one crossbeam channel.

use std::thread::JoinHandle;

use crossbeam_channel::{Sender, unbounded};

use crate::pool::Pool;

type Job = Box<dyn FnOnce() + Send>;

/// The contender; see the header of the file.
#[derive(Debug)]
pub struct Crossbeam {
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool for Crossbeam {
    const NAME: &'static str = "crossbeam";

    fn start(threads: usize) -> Self {
        let (send, receive) = unbounded::<Job>();
        let threads = (0..threads)
            .map(|_| {
                let receive = receive.clone();
                std::thread::spawn(move || receive.into_iter().for_each(|job| job()))
            })
            .collect();
        Self {
            jobs: Some(send),
            threads,
        }
    }

    fn spawn<J: FnOnce() + Send + 'static>(&self, job: J) {
        let jobs = self
            .jobs
            .as_ref()
            .expect("the channel lives as long as the pool");
        jobs.send(Box::new(job)).expect("the threads take jobs");
    }
}

impl Drop for Crossbeam {
    fn drop(&mut self) {
        drop(self.jobs.take());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
