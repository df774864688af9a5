//! Bare: the `threadpool` crate.

use ::threadpool::ThreadPool;

use crate::pool::Pool;

/// The contender; see the header of the file.
#[derive(Debug)]
pub struct Threadpool(ThreadPool);

impl Pool for Threadpool {
    const NAME: &'static str = "threadpool";

    fn start(threads: usize) -> Self {
        Self(ThreadPool::new(threads))
    }

    fn spawn<J: FnOnce() + Send + 'static>(&self, job: J) {
        self.0.execute(job);
    }
}

impl Drop for Threadpool {
    fn drop(&mut self) {
        self.0.join();
    }
}
