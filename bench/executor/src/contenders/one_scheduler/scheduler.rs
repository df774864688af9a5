//! The scheduler thread: all state of tasks belongs to one thread, and therefore needs no lock.
//!
//! Invariants:
//! * A task is at the workers exactly between the sending of its [`Run`] and the arrival of its `Ended`; it is sent only
//!   when it is not there, so it never runs twice at once.
//! * A wake, snooze or cancel of a task that is at the workers is stored, and takes effect when the task comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use hashbrown::HashMap;
use slab::Slab;

use super::inbox::Inbox;
use super::wheel::Wheel;
use crate::baton::Baton;
use crate::contenders::task::{Body, KINDS, Kind, Next};
use crate::hist::KindStats;

/// The number of messages that are taken before the clock and the wheel are checked again.
const BATCH: usize = 256;
/// The wake time of a task that sleeps until it is woken.
pub(super) const NEVER_NS: u64 = u64::MAX;

// Messages are copied into the queue and out of it.
const _: () = assert!(size_of::<Message>() <= 40);

pub(super) enum Message {
    Schedule {
        id: u64,
        owner: u32,
        kind: Kind,
        /// The time from now, or [`NEVER_NS`].
        wake_in_ns: u64,
        body: Body,
    },
    Wake(u64),
    WakeAndWait(u64, Arc<Reply>),
    Snooze {
        id: u64,
        wake_in_ns: u64,
    },
    Cancel(u64),
    Ended {
        key: u32,
        next: Next,
        ran_ns: u64,
        body: Option<Body>,
    },
    Stop,
}

/// The scheduler's reply to a waiting caller.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) baton: Baton,
    pub(super) found: AtomicBool,
}

/// A task on its way to a worker.
pub(super) struct Run {
    pub(super) key: u32,
    pub(super) kind: Kind,
    pub(super) wake_at_ns: u64,
    pub(super) body: Body,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) inbox: Inbox<Message>,
    pub(super) stats: [KindStats; KINDS],
    pub(super) epoch: Instant,
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Message")
    }
}

impl Shared {
    pub(super) fn now_ns(&self) -> u64 {
        nanos(self.epoch.elapsed())
    }
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

struct Task {
    id: u64,
    owner: u32,
    kind: Kind,
    wake_at_ns: u64,
    runs: u64,
    run_ns: u64,
    /// `None` while the task is at the workers.
    body: Option<Body>,
    woken: bool,
    snooze_until_ns: Option<u64>,
    cancelled: bool,
}

pub(super) struct Scheduler {
    shared: Arc<Shared>,
    /// The numbers of tasks by owner, which unregistering needs.
    owners: HashMap<u32, usize>,
    by_id: HashMap<u64, usize>,
    tasks: Slab<Task>,
    wheel: Wheel,
    workers: Sender<Run>,
    now_ns: u64,
}

impl Scheduler {
    pub(super) fn new(shared: Arc<Shared>, workers: Sender<Run>) -> Self {
        Self {
            shared,
            owners: HashMap::new(),
            by_id: HashMap::new(),
            tasks: Slab::new(),
            wheel: Wheel::new(),
            workers,
            now_ns: 0,
        }
    }

    pub(super) fn run(mut self) {
        self.shared.inbox.attach();
        let shared = Arc::clone(&self.shared);
        let mut fired = Vec::new();
        loop {
            self.now_ns = shared.now_ns();
            self.wheel.advance(self.now_ns, &mut fired);
            for key in fired.drain(..) {
                self.send(key);
            }
            let mut taken = 0;
            while taken < BATCH
                && let Some(message) = shared.inbox.take()
            {
                if matches!(message, Message::Stop) {
                    return;
                }
                self.act(message);
                taken += 1;
            }
            if taken == 0 {
                let until = self.wheel.next_ns();
                let time = until.map(|ns| Duration::from_nanos(ns.saturating_sub(self.now_ns)));
                shared.inbox.sleep(time);
            }
        }
    }

    fn act(&mut self, message: Message) {
        match message {
            Message::Schedule {
                id,
                owner,
                kind,
                wake_in_ns,
                body,
            } => self.schedule(id, owner, kind, wake_in_ns, body),
            Message::Wake(id) => {
                self.wake(id);
            }
            Message::WakeAndWait(id, reply) => {
                let found = self.wake(id);
                reply.found.store(found, Ordering::Relaxed);
                reply.baton.post();
            }
            Message::Snooze { id, wake_in_ns } => self.snooze(id, wake_in_ns),
            Message::Cancel(id) => self.cancel(id),
            Message::Ended {
                key,
                next,
                ran_ns,
                body,
            } => self.ended(key as usize, next, ran_ns, body),
            Message::Stop => {}
        }
    }

    fn schedule(&mut self, id: u64, owner: u32, kind: Kind, wake_in_ns: u64, body: Body) {
        let key = self.tasks.insert(Task {
            id,
            owner,
            kind,
            wake_at_ns: self.now_ns,
            runs: 0,
            run_ns: 0,
            body: Some(body),
            woken: false,
            snooze_until_ns: None,
            cancelled: false,
        });
        self.by_id.insert(id, key);
        *self.owners.entry(owner).or_default() += 1;
        match wake_in_ns {
            0 => self.send(key),
            NEVER_NS => {}
            _ => self.set_timer(key, self.now_ns + wake_in_ns),
        }
    }

    fn wake(&mut self, id: u64) -> bool {
        let Some(key) = self.by_id.get(&id).copied() else {
            return false;
        };
        let task = &mut self.tasks[key];
        if task.body.is_none() {
            task.woken = true;
        } else {
            task.wake_at_ns = self.now_ns;
            self.wheel.clear(key);
            self.send(key);
        }
        true
    }

    fn snooze(&mut self, id: u64, wake_in_ns: u64) {
        let Some(key) = self.by_id.get(&id).copied() else {
            return;
        };
        let until = self.now_ns + wake_in_ns;
        let task = &mut self.tasks[key];
        if task.body.is_none() {
            task.snooze_until_ns = Some(until);
        } else {
            self.set_timer(key, until);
        }
    }

    fn cancel(&mut self, id: u64) {
        let Some(key) = self.by_id.get(&id).copied() else {
            return;
        };
        if self.tasks[key].body.is_none() {
            self.tasks[key].cancelled = true;
        } else {
            self.remove(key);
        }
    }

    fn ended(&mut self, key: usize, next: Next, ran_ns: u64, body: Option<Body>) {
        let task = &mut self.tasks[key];
        task.runs += 1;
        task.run_ns += ran_ns;
        if task.cancelled || next == Next::Done {
            self.remove(key);
            return;
        }
        task.body = body;
        let woken = std::mem::take(&mut task.woken);
        let snooze_until = task.snooze_until_ns.take();
        if woken {
            task.wake_at_ns = self.now_ns;
            self.send(key);
        } else if let Some(until) = snooze_until {
            self.set_timer(key, until);
        }
    }

    fn set_timer(&mut self, key: usize, until_ns: u64) {
        self.tasks[key].wake_at_ns = until_ns;
        self.wheel.set(key, until_ns);
    }

    /// Hands a task to the workers.
    fn send(&mut self, key: usize) {
        let task = &mut self.tasks[key];
        let body = task.body.take().expect("a task is sent when it is here");
        let run = Run {
            key: key as u32,
            kind: task.kind,
            wake_at_ns: task.wake_at_ns,
            body,
        };
        self.workers
            .send(run)
            .expect("the workers outlive the scheduler");
    }

    fn remove(&mut self, key: usize) {
        self.wheel.clear(key);
        let task = self.tasks.remove(key);
        self.by_id.remove(&task.id);
        if let Some(count) = self.owners.get_mut(&task.owner) {
            *count -= 1;
        }
    }
}
