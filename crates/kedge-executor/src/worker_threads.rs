//! The threads: those of the pools, and the timer thread, which wakes tasks at their deadlines and is the watchdog of
//! the run queues.

use crate::backoff::AttemptBackoff;
use crate::clock::calibrate;
use crate::executor::Executor;
use crate::kind::Pool;
use crate::pool::{PoolShared, PoolWorker, WorkerAction};
use crate::slab::NEVER;
use crate::sync::{Ordering, park_timeout, relax, thread};
use std::io;
use std::time::Duration;

/// Number of spinning iterations between two readings of the clock, about 1 us.
const SPINS_PER_LOOK: u32 = if cfg!(kedge_model) { 1 } else { 32 };
/// Time in ns for which a thread spins for work, longer than waking a thread takes. After unsuccessful spins, because
/// the pool has little work or others need the processor, the thread spins ever more rarely.
const SPIN_NS: u64 = 30_000;
/// Interval at which the watchdog checks the pools while it is active.
const WATCH_TICK: Duration = Duration::from_millis(1);
/// Number of checks after which the watchdog becomes inactive, unless it is requested again.
const WATCH_TICKS: u32 = 16;

impl Executor {
    fn spawn(
        &self,
        name: String,
        run: impl FnOnce(&Self) + Send + 'static,
    ) -> io::Result<thread::JoinHandle<()>> {
        let executor = Self::unguarded(&self.inner);
        thread::Builder::new()
            .name(name)
            .spawn(move || run(&executor))
    }

    pub(crate) fn start_timer(&self) -> io::Result<()> {
        if cfg!(kedge_model) {
            // The watchdog would hide that no thread reads the queue. Models that need a timer start it themselves.
            return Ok(());
        }
        calibrate();
        self.start_timer_thread()
    }

    pub(crate) fn start_timer_thread(&self) -> io::Result<()> {
        let timer = self.spawn("timer".to_owned(), Self::run_timer)?;
        self.inner.workers.threads.lock().push(timer);
        Ok(())
    }

    pub(crate) fn resize(&self, pool: Pool, count: usize) -> io::Result<()> {
        let mut threads = self.inner.workers.threads.lock();
        if self.is_stopped() {
            return Ok(());
        }
        threads.retain(|thread| !is_finished(thread));
        let shared = &self.inner.pools[pool as usize];
        let mut begun = shared.resize(count).into_iter();
        while let Some((number, worker)) = begun.next() {
            let name = format!("{}-{number}", pool.name());
            let thread = self.spawn(name, move |executor| {
                executor.run_worker(pool, number, &worker);
            });
            match thread {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    let rest = begun.map(|(number, _)| number);
                    shared.start_failed([number].into_iter().chain(rest));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Ends the threads and joins all but the calling one.
    pub(crate) fn end_threads(&self) {
        self.inner.workers.retire(&self.inner.pools);
        let threads = std::mem::take(&mut *self.inner.workers.threads.lock());
        for thread in threads {
            if thread.thread().id() != thread::current().id() {
                // Panics of tasks are caught, so there is none to propagate.
                let _ = thread.join();
            }
        }
    }

    fn run_worker(&self, pool: Pool, me: usize, worker: &PoolWorker) {
        worker.enter();
        if pool == Pool::AuxIo {
            lower_priority(self.inner.workers.config.auxio_nice);
        }
        let inner = &self.inner;
        let shared = &inner.pools[pool as usize];
        let is_quick = |index| inner.kinds.get(inner.slab.slot(index).kind()).is_quick();
        let mut now_ns = inner.clock.now_ns();
        let mut has_looked = false;
        let mut backoff = AttemptBackoff::new();
        loop {
            let (turn, help) = shared.next(me, now_ns, has_looked, is_quick);
            has_looked = false;
            if let Some(other) = help {
                other.wake();
            }
            let look = match turn {
                WorkerAction::Run { task, look } => {
                    now_ns = inner.run(self, task, now_ns, me);
                    look && !shared.has_work()
                }
                WorkerAction::Look => true,
                WorkerAction::Sleep => {
                    worker.sleep();
                    now_ns = inner.clock.now_ns();
                    false
                }
                WorkerAction::Retire => return,
            };
            if look {
                has_looked = true;
                if backoff.try_now() {
                    let since_ns = now_ns;
                    now_ns = self.spin(shared, since_ns);
                    backoff.note(now_ns < since_ns + SPIN_NS);
                }
            }
        }
    }

    /// Spins for work. Returns the time at which it found some or gave up.
    fn spin(&self, pool: &PoolShared, since_ns: u64) -> u64 {
        let mut now_ns = since_ns;
        while now_ns < since_ns + SPIN_NS {
            pool.spins(now_ns);
            for _ in 0..SPINS_PER_LOOK {
                if pool.has_work() {
                    return self.inner.clock.now_ns();
                }
                relax();
            }
            now_ns = self.inner.clock.now_ns();
        }
        now_ns
    }

    fn run_timer(&self) {
        let workers = &self.inner.workers;
        workers.timer.get_or_init(thread::current);
        let mut ticks = 0;
        loop {
            let next_ns = self.fire_timers();
            if self.is_stopped() && self.inner.pools.iter().all(|pool| pool.info().threads == 0) {
                return;
            }
            let now_ns = self.inner.clock.now_ns();
            if workers.watching.load(Ordering::SeqCst) {
                ticks += 1;
                if ticks > WATCH_TICKS {
                    ticks = 0;
                    workers.watching.store(false, Ordering::SeqCst);
                }
                // Also after the watchdog became inactive: a thread that queued a task before that did not request it
                // again.
                let wanted = self
                    .inner
                    .pools
                    .iter()
                    .fold(false, |wanted, pool| pool.watch(now_ns) | wanted);
                if wanted {
                    ticks = 0;
                    workers.watching.store(true, Ordering::SeqCst);
                }
            }
            if next_ns == NEVER && !workers.watching.load(Ordering::SeqCst) {
                thread::park();
                continue;
            }
            let mut wait = Duration::from_nanos(next_ns.saturating_sub(now_ns));
            if workers.watching.load(Ordering::SeqCst) {
                wait = wait.min(WATCH_TICK);
            }
            park_timeout(wait);
        }
    }

    /// Queues the tasks whose deadlines have passed. Returns the time of the next check, in ns.
    pub(crate) fn fire_timers(&self) -> u64 {
        let inner = &self.inner;
        let mut due = Vec::new();
        loop {
            let now_ns = inner.clock.now_ns();
            let next_ns = inner.timers.take_due(&inner.slab, now_ns, &mut due);
            if due.is_empty() {
                return next_ns;
            }
            for index in due.drain(..) {
                inner.visit(index, now_ns);
            }
        }
    }
}

#[cfg(not(kedge_model))]
fn is_finished(thread: &thread::JoinHandle<()>) -> bool {
    thread.is_finished()
}

#[cfg(kedge_model)]
fn is_finished(_: &thread::JoinHandle<()>) -> bool {
    false
}

/// Raises the nice value of the calling thread. Failures are ignored.
fn lower_priority(nice: i32) {
    #[cfg(all(target_os = "linux", not(kedge_model)))]
    {
        use rustix::process::{getpriority_process, setpriority_process};
        // On Linux, "the calling process" means the calling thread here.
        if let Ok(now) = getpriority_process(None) {
            let _ = setpriority_process(None, now + nice.clamp(0, 19));
        }
    }
    #[cfg(not(all(target_os = "linux", not(kedge_model))))]
    let _ = nice;
}
