//! One run of a task, and the end of tasks and owners.

use crate::TaskId;
use crate::clock::nanos;
use crate::context::Context;
use crate::executor::{Executor, Inner};
use crate::job::{Body, Next, Outcome};
use crate::owners::OwnerId;
use crate::queue::Index;
use crate::slab::{NEVER, Slot};
use crate::state::{Ended, Phase, Posted};
use crate::stats::KindStats;
use crate::sync::{Ordering, thread_local};
use std::cell::Cell;
use std::time::Duration;

thread_local! {
    /// The executor and the owner whose task this thread runs or drops.
    static ON_BEHALF_OF: Cell<Option<(usize, u16)>> = const { Cell::new(None) };
}

impl Inner {
    /// Runs a task that was taken from the run queue. Returns the time at its end.
    pub(crate) fn run(&self, executor: &Executor, index: Index, now_ns: u64, thread: usize) -> u64 {
        let slot = self.slab.slot(index);
        let begun = slot.state.begin();
        let id = TaskId::new(index, begun.generation);
        if begun.awaited {
            self.awaited.tell(id, !begun.cancelled);
        }
        if begun.cancelled {
            self.bury(id, slot, None);
            return self.clock.now_ns();
        }
        let body = slot.cell.lock().body.take();
        let Some(body) = body else {
            self.bury(id, slot, None);
            return self.clock.now_ns();
        };
        let runs = slot.runs.load(Ordering::Relaxed);
        slot.runs.store(runs.wrapping_add(1), Ordering::Relaxed);
        slot.begun_ns.store(now_ns, Ordering::Relaxed);
        let context = Context {
            executor,
            id,
            now_ns,
            last: begun.last,
        };
        let (outcome, body) = self.on_behalf_of(slot.owner(), || body.run(&context));
        let end_ns = self.clock.now_ns();
        let run_ns = end_ns.saturating_sub(now_ns);
        let kind = self.kinds.get(slot.kind());
        let queue_ns = now_ns.saturating_sub(slot.queued_ns.load(Ordering::Relaxed));
        kind.record(thread, queue_ns, run_ns);
        self.note_slow(id, slot, kind, run_ns);
        let before_ns = slot.run_ns.load(Ordering::Relaxed);
        slot.run_ns.store(before_ns + run_ns, Ordering::Relaxed);
        slot.last_run_ns.store(run_ns, Ordering::Relaxed);
        let next = match outcome {
            Outcome::Next(next) => next,
            Outcome::Panicked(text) => {
                note_panic(kind, id, &text);
                Next::Done
            }
        };
        let next = if begun.last { Next::Done } else { next };
        self.follow(id, slot, body, next, end_ns);
        end_ns
    }

    /// What a run is followed by.
    fn follow(&self, id: TaskId, slot: &Slot, body: Option<Body>, next: Next, now_ns: u64) {
        let after = match next {
            Next::Done => {
                match body {
                    Some(body) => self.bury(id, slot, Some(body)),
                    None => self.vacate(id, slot),
                }
                return;
            }
            Next::Again | Next::Snooze(Duration::ZERO) => {
                slot.cell.lock().body = body;
                slot.state.end_again()
            }
            Next::Snooze(_) | Next::Sleep => {
                // The deadline stands before the task sleeps: a timer that sees it asleep sees the right one.
                let deadline_ns = match next {
                    Next::Snooze(time) => now_ns.saturating_add(nanos(time)),
                    _ => NEVER,
                };
                slot.deadline_ns.store(deadline_ns, Ordering::Relaxed);
                slot.cell.lock().body = body;
                slot.state.end_asleep()
            }
        };
        if after == Ended::Queue {
            self.queue_again(id.index(), now_ns);
        } else {
            self.follow_end(id, slot, after, now_ns);
        }
    }

    /// What the state says after a run that left the body in the slot.
    pub(crate) fn follow_end(&self, id: TaskId, slot: &Slot, after: Ended, now_ns: u64) {
        match after {
            Ended::Asleep => self.arm(id.index(), slot, now_ns),
            Ended::Queue => self.queue_at(id.index(), now_ns),
            Ended::Dead => self.bury(id, slot, None),
        }
    }

    /// Takes back a task that nobody could run yet. Its caller has it then, and drops it: its owner need not wait.
    pub(crate) fn withdraw(&self, id: TaskId, slot: &Slot) {
        let (owner, body) = (slot.owner(), slot.cell.lock().body.take());
        slot.state.free();
        self.slab.give_back(id.index());
        self.owners.on_gone(owner);
        self.end_if_over();
        drop(body);
    }

    /// Drops a task that this thread has, and gives its place back. `body` is given when it is not in the slot.
    fn bury(&self, id: TaskId, slot: &Slot, body: Option<Body>) {
        let body = body.or_else(|| slot.cell.lock().body.take());
        let owner = slot.owner();
        let panicked = self.on_behalf_of(owner, || body.and_then(Body::dispose));
        if let Some(text) = panicked {
            note_panic(self.kinds.get(slot.kind()), id, &text);
        }
        self.vacate(id, slot);
    }

    /// Gives the place of a task back that is dropped.
    fn vacate(&self, id: TaskId, slot: &Slot) {
        let owner = slot.owner();
        if slot.state.free() {
            self.awaited.tell(id, false);
        }
        self.slab.give_back(id.index());
        self.owners.on_gone(owner);
        self.end_if_over();
    }

    /// Does what a task of that owner asks for. It must not panic.
    fn on_behalf_of<T>(&self, owner: u16, work: impl FnOnce() -> T) -> T {
        let me = Some((self.address(), owner));
        let before = ON_BEHALF_OF.with(|of| of.replace(me));
        let result = work();
        ON_BEHALF_OF.with(|of| of.set(before));
        result
    }

    /// The owner of the task of this executor that this thread runs or drops.
    fn working_for(&self) -> Option<u16> {
        let (executor, owner) = ON_BEHALF_OF.with(Cell::get)?;
        (executor == self.address()).then_some(owner)
    }

    /// Tells executors apart.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn note_slow(&self, id: TaskId, slot: &Slot, stats: &KindStats, run_ns: u64) {
        let expected = stats.kind.expected();
        if run_ns <= nanos(expected) {
            return;
        }
        stats.slow.fetch_add(1, Ordering::Relaxed);
        // Of its own, as who asks for the tasks must not wait until the line is written.
        let description = slot.cell.lock().description.clone();
        tracing::warn!(
            kind = stats.kind.name(),
            task = id.get(),
            owner = self.owners.name(slot.owner()),
            %description,
            took_ms = run_ns / 1_000_000,
            expected_ms = expected.as_millis() as u64,
            "a task ran for longer than it should"
        );
    }

    /// The timer looks at a slot: a sleeper that is due is queued, one that is not is looked at later.
    pub(crate) fn visit(&self, index: Index, now_ns: u64) {
        let slot = self.slab.slot(index);
        let view = slot.state.load();
        if view.phase() != Some(Phase::Asleep) {
            return;
        }
        if slot.deadline_ns.load(Ordering::SeqCst) > now_ns {
            self.arm(index, slot, now_ns);
        } else if slot.state.wake_sleep(view) {
            self.queue_at(index, now_ns);
        }
    }

    pub(crate) fn unregister(&self, owner: OwnerId, force: bool, executor: &Executor) {
        assert!(
            self.working_for() != Some(owner.index()),
            "a task cannot wait for the end of its own owner"
        );
        self.end_owner(owner, force);
        self.wait_for_end(owner, executor);
    }

    /// Ends all owners. Returns whether that is waited for: a task that ended them is none to wait for others, who may
    /// do the same.
    pub(crate) fn end_owners(&self, executor: &Executor) -> bool {
        let owners = self.owners.all();
        for owner in &owners {
            self.end_owner(*owner, true);
        }
        if self.working_for().is_some() {
            self.end_of_tasks.store(true, Ordering::SeqCst);
            return false;
        }
        for owner in owners {
            self.wait_for_end(owner, executor);
        }
        true
    }

    /// Takes no more tasks of an owner, and ends those that it has.
    fn end_owner(&self, owner: OwnerId, force: bool) {
        let closed = self.owners.close(owner);
        // If somebody else ends it already, last runs may be left, which force does not wait for.
        if closed || force && self.owners.is_closing(owner) {
            for id in self.tasks_of(owner) {
                self.end_task(id, force);
            }
            self.strip(owner);
        }
    }

    /// Waits until an owner that was ended has no task left.
    fn wait_for_end(&self, owner: OwnerId, executor: &Executor) {
        let is_over = || !self.owners.is_closing(owner) || self.tasks_of(owner).next().is_none();
        executor.drive_until(is_over);
        self.owners.wait(is_over);
        self.owners.forget(owner);
    }

    /// Ends the threads after the last task, when it was a task that ended everything: who waits does it himself.
    fn end_if_over(&self) {
        if self.end_of_tasks.load(Ordering::SeqCst) && self.tasks().next().is_none() {
            self.workers.retire(&self.pools);
        }
    }

    /// The tasks there are, and their owners.
    fn tasks(&self) -> impl Iterator<Item = (TaskId, u16)> {
        self.slab.iter().filter_map(|(index, slot)| {
            let view = slot.state.load();
            view.phase()?;
            Some((TaskId::new(index, view.generation()), slot.owner()))
        })
    }

    fn tasks_of(&self, owner: OwnerId) -> impl Iterator<Item = TaskId> {
        let of_owner = self.tasks().filter(move |(_, of)| *of == owner.index());
        of_owner.map(|(id, _)| id)
    }

    fn end_task(&self, id: TaskId, force: bool) {
        let slot = self.slab.slot(id.index());
        let posted = if !force && slot.cell.lock().wants_last_run {
            slot.state.wake_for_last_run(id.generation())
        } else {
            slot.state.cancel(id.generation())
        };
        if posted == Posted::Queue {
            self.queue(id.index());
        }
    }

    /// Drops an owner's tasks that are cancelled and wait for a thread: it might come late.
    fn strip(&self, owner: OwnerId) {
        let mut stripped = Vec::new();
        for pool in &self.pools {
            pool.strip(owner.index(), &mut stripped);
        }
        for index in stripped {
            let slot = self.slab.slot(index);
            let view = slot.state.load();
            if view.is_cancelled() {
                let id = TaskId::new(index, view.generation());
                if slot.state.begin().awaited {
                    self.awaited.tell(id, false);
                }
                self.bury(id, slot, None);
            } else {
                self.push(index, self.clock.now_ns());
            }
        }
    }
}

fn note_panic(stats: &KindStats, id: TaskId, text: &str) {
    stats.panics.fetch_add(1, Ordering::Relaxed);
    tracing::error!(
        kind = stats.kind.name(),
        task = id.get(),
        panic = text,
        "a task panicked and is gone"
    );
}
