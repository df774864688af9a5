//! Kinds, executors and tasks for the tests.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use kedge_executor::{
    Executor, ExecutorConfig, ManualExecutor, Next, OwnerId, Pool, Priority, Task, TaskContext,
    TaskId, TaskKind, TaskKindStats, TaskSpec, ThreadCount,
};

/// The deadline of operations that take next to no time. Only a broken executor reaches it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// The expected duration of runs. It is long, because even an empty run may take long on a busy machine.
const LONG: Duration = HOUR;

pub(crate) static HIGH: TaskKind = TaskKind::new("high", Pool::NonIo, Priority::High, LONG);
pub(crate) static NORMAL: TaskKind = TaskKind::new("normal", Pool::NonIo, Priority::Normal, LONG);
pub(crate) static LOW: TaskKind = TaskKind::new("low", Pool::NonIo, Priority::Low, LONG);
pub(crate) static READER: TaskKind = TaskKind::new("read", Pool::Reader, Priority::Normal, LONG);
pub(crate) static WRITER: TaskKind = TaskKind::new("write", Pool::Writer, Priority::Normal, LONG);
pub(crate) static AUXIO: TaskKind = TaskKind::new("copy", Pool::AuxIo, Priority::Normal, LONG);

/// Creates a manual executor with an owner.
pub(crate) fn manual() -> (Executor, ManualExecutor, OwnerId) {
    let (executor, manual) = ManualExecutor::new();
    let owner = executor.register("owner").unwrap();
    (executor, manual, owner)
}

/// Creates an executor with `threads` threads in each pool, and an owner.
pub(crate) fn threaded(threads: usize) -> (Executor, OwnerId) {
    let threads = ThreadCount::Fixed(threads);
    let executor = Executor::new(ExecutorConfig {
        reader: threads,
        writer: threads,
        auxio: threads,
        nonio: threads,
        ..ExecutorConfig::default()
    });
    let executor = executor.unwrap();
    let owner = executor.register("owner").unwrap();
    (executor, owner)
}

/// A task that sleeps until it is woken.
pub(crate) fn asleep(kind: &'static TaskKind, owner: OwnerId) -> TaskSpec {
    TaskSpec {
        first_run: None,
        ..TaskSpec::new(kind, owner)
    }
}

/// A task that first runs after `time`.
pub(crate) fn after(kind: &'static TaskKind, owner: OwnerId, time: Duration) -> TaskSpec {
    TaskSpec {
        first_run: Some(time),
        ..TaskSpec::new(kind, owner)
    }
}

/// Schedules a task that sleeps until it is woken, repeatedly, and counts its runs.
pub(crate) fn sleeper(executor: &Executor, owner: OwnerId) -> (TaskId, Counter) {
    let runs = Counter::default();
    let id = executor.schedule(asleep(&NORMAL, owner), runs.task(Next::Sleep));
    (id.unwrap(), runs)
}

/// Returns the statistics of a kind.
pub(crate) fn histogram_of(executor: &Executor, kind: &TaskKind) -> TaskKindStats {
    let kinds = executor.kinds();
    let info = kinds.iter().find(|info| std::ptr::eq(info.kind, kind));
    info.expect("there were such tasks").clone()
}

/// A counter that tasks share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter(Arc<AtomicU32>);

impl Counter {
    pub(crate) fn add(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// A task that counts its runs and always returns `next`.
    pub(crate) fn task(&self, next: Next) -> impl Task + use<> {
        let counter = self.clone();
        move |_: &TaskContext<'_>| {
            counter.add();
            next
        }
    }

    pub(crate) fn wait_for(&self, count: u32) {
        eventually(|| self.get() >= count);
    }
}

/// A shared list of events, in order.
#[derive(Debug)]
pub(crate) struct Log<T>(Arc<Mutex<Vec<T>>>);

impl<T> Clone for Log<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Log<T> {
    pub(crate) fn note(&self, event: T) {
        self.0.lock().unwrap().push(event);
    }

    /// Takes the events so far.
    pub(crate) fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Calls a function when it is dropped.
pub(crate) struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> OnDrop<F> {
    pub(crate) fn new(then: F) -> Self {
        Self(Some(then))
    }

    /// Keeps the value alive up to this call, because a closure that calls it captures the whole value.
    pub(crate) fn touch(&self) {}
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(then) = self.0.take() {
            then();
        }
    }
}

/// A task that sleeps, and calls a function when it is dropped.
pub(crate) fn dropping(then: impl FnOnce() + Send + 'static) -> impl Task {
    let guard = OnDrop::new(then);
    move |_: &TaskContext<'_>| {
        guard.touch();
        Next::Sleep
    }
}

/// Runs work that must end on a thread. The test fails if it does not end before the deadline.
pub(crate) fn within<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    finish(&begin(work))
}

/// Starts work on a thread of its own, for [`finish`].
pub(crate) fn begin<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (done, result) = channel();
    thread::spawn(move || {
        // The receiver is gone when the test has failed.
        let _ = done.send(work());
    });
    result
}

/// Returns the result of started work.
pub(crate) fn finish<T>(result: &Receiver<T>) -> T {
    match result.recv_timeout(DEADLINE) {
        Ok(value) => value,
        Err(error) => panic!("what should end did not: {error}"),
    }
}

/// Waits until a condition holds.
pub(crate) fn eventually(holds: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "what should happen did not");
        // sleep: nothing tells of the change that is waited for
        thread::sleep(Duration::from_micros(200));
    }
}

/// Lets time pass without yielding the processor.
pub(crate) fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// A gate at which threads wait until it is opened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, std::sync::Condvar)>);

impl Gate {
    pub(crate) fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    pub(crate) fn pass(&self) {
        let open = self.0.0.lock().unwrap();
        let closed = |open: &mut bool| !*open;
        let (open, _) = self.0.1.wait_timeout_while(open, DEADLINE, closed).unwrap();
        assert!(*open, "the gate was not opened in time");
    }
}

/// Occupies the only thread of [`Pool::NonIo`] until the gate opens. Returns when the thread is occupied.
pub(crate) fn occupy(executor: &Executor, owner: OwnerId) -> (TaskId, Gate) {
    let (began, gate) = (Gate::default(), Gate::default());
    let (tell, pass) = (began.clone(), gate.clone());
    let task = move |_: &TaskContext<'_>| {
        tell.open();
        pass.pass();
        Next::Done
    };
    let id = executor
        .schedule(TaskSpec::new(&HIGH, owner), task)
        .unwrap();
    began.pass();
    (id, gate)
}
