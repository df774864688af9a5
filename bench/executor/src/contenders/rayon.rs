//! Bare: `rayon::ThreadPool::spawn`.

use ::rayon::{ThreadPool, ThreadPoolBuilder};

use crate::pool::Pool;

/// The contender; see the header of the file.
#[derive(Debug)]
pub struct Rayon(ThreadPool);

impl Pool for Rayon {
    const NAME: &'static str = "rayon";

    fn start(threads: usize) -> Self {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build();
        Self(pool.expect("a pool can be started"))
    }

    fn spawn<J: FnOnce() + Send + 'static>(&self, job: J) {
        self.0.spawn(job);
    }
}
