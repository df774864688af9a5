//! Today's design: one scheduler thread with a timer wheel owns all scheduling state and receives everything through a
//! queue; workers execute its tasks in order. A task that is woken goes caller -> scheduler -> worker -> scheduler.
//!
//! Only `wake_and_wait` waits for the scheduler.

mod inbox;
mod scheduler;
mod wheel;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};

use self::inbox::Inbox;
use self::scheduler::{Message, NEVER_NS, Reply, Run, Scheduler, Shared, nanos};
use super::task::{BENCH, Body, Kind, LONG_LIVED, Next, ONE_SHOT, once, sleeper};
use crate::baton::{BATON_SPIN, Baton};
use crate::pool::{Pool, TaskPool, WholePool};

/// The contender; see the header of the file.
#[derive(Debug)]
pub struct OneScheduler {
    shared: Arc<Shared>,
    next_id: AtomicU64,
    scheduler: Option<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
    /// The workers of the other pools, which only a whole server has; they wait here.
    others: Vec<(Sender<Run>, Vec<JoinHandle<()>>)>,
}

fn run_worker(shared: &Shared, runs: &Receiver<Run>) {
    while let Ok(run) = runs.recv() {
        let mut body = run.body;
        let stats = &shared.stats[usize::from(run.kind)];
        let began = shared.now_ns();
        let queued = began.saturating_sub(run.wake_at_ns);
        stats.queue_time.record(queued);
        let next = body();
        let ran_ns = shared.now_ns().saturating_sub(began);
        stats.run_time.record(ran_ns);
        // A finished task is dropped here: on the scheduler thread it would delay all others.
        let body = if next == Next::Done { None } else { Some(body) };
        shared.inbox.post(Message::Ended {
            key: run.key,
            next,
            ran_ns,
            body,
        });
    }
}

fn start_workers(shared: &Arc<Shared>, threads: usize) -> (Sender<Run>, Vec<JoinHandle<()>>) {
    let (send, receive) = unbounded();
    let workers = (0..threads)
        .map(|_| {
            let (shared, receive) = (Arc::clone(shared), receive.clone());
            std::thread::spawn(move || run_worker(&shared, &receive))
        })
        .collect();
    (send, workers)
}

impl OneScheduler {
    fn start_pools(threads: &[usize]) -> Self {
        let shared = Arc::new(Shared {
            inbox: Inbox::new(),
            stats: Default::default(),
            epoch: Instant::now(),
        });
        let others = threads[1..]
            .iter()
            .map(|count| start_workers(&shared, *count))
            .collect();
        let (send, workers) = start_workers(&shared, threads[0]);
        let scheduler = Scheduler::new(Arc::clone(&shared), send);
        Self {
            shared,
            next_id: AtomicU64::new(1),
            scheduler: Some(std::thread::spawn(move || scheduler.run())),
            workers,
            others,
        }
    }

    fn schedule(&self, kind: Kind, wake_in: Option<Duration>, body: Body) -> u64 {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.shared.inbox.post(Message::Schedule {
            id,
            owner: BENCH,
            kind,
            wake_in_ns: wake_in.map_or(NEVER_NS, nanos),
            body,
        });
        id
    }
}

impl Drop for OneScheduler {
    fn drop(&mut self) {
        self.shared.inbox.post(Message::Stop);
        if let Some(scheduler) = self.scheduler.take() {
            let _ = scheduler.join();
        }
        // The scheduler had the sending end; without it the workers end.
        let others = self.others.drain(..).flat_map(|(_, workers)| workers);
        for worker in self.workers.drain(..).chain(others) {
            let _ = worker.join();
        }
    }
}

impl Pool for OneScheduler {
    const NAME: &'static str = "one_scheduler";

    fn start(threads: usize) -> Self {
        Self::start_pools(&[threads])
    }

    fn spawn<J: FnOnce() + Send + 'static>(&self, job: J) {
        self.schedule(ONE_SHOT, Some(Duration::ZERO), once(job));
    }
}

impl TaskPool for OneScheduler {
    type Id = u64;

    fn add<R: FnMut() + Send + 'static>(&self, wake_in: Option<Duration>, run: R) -> u64 {
        self.schedule(LONG_LIVED, wake_in, sleeper(run))
    }

    fn wake(&self, id: u64) {
        self.shared.inbox.post(Message::Wake(id));
    }

    fn wake_and_wait(&self, id: u64) -> bool {
        let reply = Arc::new(Reply {
            baton: Baton::new(BATON_SPIN),
            found: AtomicBool::new(false),
        });
        self.shared
            .inbox
            .post(Message::WakeAndWait(id, Arc::clone(&reply)));
        reply.baton.wait();
        reply.found.load(Ordering::Relaxed)
    }

    fn snooze(&self, id: u64, wake_in: Duration) {
        self.shared.inbox.post(Message::Snooze {
            id,
            wake_in_ns: nanos(wake_in),
        });
    }

    fn cancel(&self, id: u64) {
        self.shared.inbox.post(Message::Cancel(id));
    }
}

impl WholePool for OneScheduler {
    fn start_whole() -> Self {
        Self::start_pools(&super::WHOLE)
    }
}
