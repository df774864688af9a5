//! Bare: tokio's multi-threaded runtime, once with `spawn` and once with `spawn_blocking`.

use ::tokio::runtime::{Builder, Runtime};

use crate::pool::Pool;

/// `tokio::spawn` on the requested number of worker threads.
#[derive(Debug)]
pub struct TokioSpawn(Runtime);

/// `tokio::task::spawn_blocking` on the requested number of blocking threads.
#[derive(Debug)]
pub struct TokioSpawnBlocking(Runtime);

impl Pool for TokioSpawn {
    const NAME: &'static str = "tokio_spawn";

    fn start(threads: usize) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(threads).build();
        Self(runtime.expect("a runtime can be started"))
    }

    fn spawn<J: FnOnce() + Send + 'static>(&self, job: J) {
        drop(self.0.spawn(async move { job() }));
    }
}

impl Pool for TokioSpawnBlocking {
    const NAME: &'static str = "tokio_spawn_blocking";

    fn start(threads: usize) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(threads)
            .build();
        Self(runtime.expect("a runtime can be started"))
    }

    fn spawn<J: FnOnce() + Send + 'static>(&self, job: J) {
        drop(self.0.spawn_blocking(job));
    }
}
