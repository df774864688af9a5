//! `kedge-executor` as the server uses it.

use std::sync::Arc;
use std::time::Duration;

use kedge_executor::{
    Executor, ExecutorConfig, Next, OwnerId, Priority, TaskId, TaskKind, TaskSpec, ThreadCount,
};

use crate::pool::{Pool, Slot, TaskPool, WholePool, work};

const EXPECTED: Duration = Duration::from_secs(1);
const NON_IO: kedge_executor::Pool = kedge_executor::Pool::NonIo;
const AUX_IO: kedge_executor::Pool = kedge_executor::Pool::AuxIo;

static ONE_SHOT: TaskKind = TaskKind::new("bench_one_shot", NON_IO, Priority::Normal, EXPECTED);
static LONG_LIVED: TaskKind = TaskKind::new("bench_long_lived", NON_IO, Priority::Normal, EXPECTED);
static ON_AUX_IO: TaskKind = TaskKind::new("bench_on_aux_io", AUX_IO, Priority::Normal, EXPECTED);

/// The contender; see the header of the file.
#[derive(Debug)]
pub struct Ours {
    executor: Executor,
    owner: OwnerId,
    /// The kind of long-lived tasks, which determines their pool.
    long_lived: &'static TaskKind,
}

impl Ours {
    fn with(config: ExecutorConfig) -> Self {
        let executor = Executor::new(config).expect("threads can be started");
        let owner = executor
            .register("bench")
            .expect("an executor takes an owner");
        Self {
            executor,
            owner,
            long_lived: &LONG_LIVED,
        }
    }

    /// Starts all pools; tasks run on the pool whose threads yield the processor to others.
    #[must_use]
    pub fn start_whole_on_auxio() -> Self {
        Self {
            long_lived: &ON_AUX_IO,
            ..Self::start_whole()
        }
    }
}

impl Pool for Ours {
    const NAME: &'static str = "kedge";

    fn start(threads: usize) -> Self {
        // The other pools sleep.
        Self::with(ExecutorConfig {
            nonio: ThreadCount::Fixed(threads),
            ..ExecutorConfig::default()
        })
    }

    fn spawn<J: FnOnce() + Send + 'static>(&self, job: J) {
        drop(self.executor.submit_as(&ONE_SHOT, self.owner, job));
    }

    fn call(&self, _: &Arc<Slot>, input: u64) -> u64 {
        let handle = self
            .executor
            .submit_as(&ONE_SHOT, self.owner, move || work(input));
        handle.wait().expect("the closure runs")
    }
}

impl TaskPool for Ours {
    type Id = TaskId;

    fn add<R: FnMut() + Send + 'static>(&self, wake_in: Option<Duration>, mut run: R) -> TaskId {
        let spec = TaskSpec {
            first_run: wake_in,
            ..TaskSpec::new(self.long_lived, self.owner)
        };
        let task = move |_: &kedge_executor::TaskContext<'_>| {
            run();
            Next::Sleep
        };
        self.executor
            .schedule(spec, task)
            .expect("the executor takes a task")
    }

    fn wake(&self, id: TaskId) {
        self.executor.wake(id);
    }

    fn wake_and_wait(&self, id: TaskId) -> bool {
        self.executor.wake_and_wait(id)
    }

    fn snooze(&self, id: TaskId, wake_in: Duration) {
        self.executor.snooze(id, wake_in);
    }

    fn cancel(&self, id: TaskId) {
        self.executor.cancel(id);
    }
}

impl WholePool for Ours {
    fn start_whole() -> Self {
        Self::with(ExecutorConfig::default())
    }
}
