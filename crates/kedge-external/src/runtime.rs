//! The thread on which a directory is asked.

use std::io;
use std::sync::{Arc, OnceLock, mpsc};

use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;

/// The largest number of threads that look up names of hosts.
const LOOKUPS_MAX: usize = 4;

/// The thread `kedge-external`, which starts with the first task.
#[derive(Default)]
pub(crate) struct TaskThread {
    handle: OnceLock<Option<Handle>>,
    end: Arc<Notify>,
}

impl TaskThread {
    /// Spawns a task. It is dropped if there is no thread for it, and after [`Self::stop`].
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let handle = self.handle.get_or_init(|| {
            let started = start(self.end.clone());
            started
                .inspect_err(
                    |error| tracing::error!(%error, "cannot start the thread of external users"),
                )
                .ok()
        });
        if let Some(handle) = handle {
            handle.spawn(task);
        }
    }

    /// Ends the thread, and drops the tasks that still run.
    pub(crate) fn stop(&self) {
        self.handle.get_or_init(|| None);
        self.end.notify_one();
    }
}

fn start(end: Arc<Notify>) -> io::Result<Handle> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .thread_name("kedge-external-io")
        .max_blocking_threads(LOOKUPS_MAX)
        .build()?;
    let (tell, told) = mpsc::channel();
    let thread = std::thread::Builder::new().name("kedge-external".to_owned());
    thread.spawn(move || {
        let _ = tell.send(runtime.handle().clone());
        runtime.block_on(end.notified());
    })?;
    told.recv().map_err(io::Error::other)
}
