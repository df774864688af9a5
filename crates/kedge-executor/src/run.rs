//! The run of a task, and the end of tasks and owners.

use crate::TaskId;
use crate::clock::nanos;
use crate::context::TaskContext;
use crate::executor::{Executor, ExecutorInner};
use crate::next::Next;
use crate::one_shot::RunOutcome;
use crate::owners::OwnerId;
use crate::queue::SlotIndex;
use crate::slab::{NEVER, TaskSlot};
use crate::state::{AfterRun, PostResult, TaskPhase};
use crate::stats::KindCounters;
use crate::sync::{Ordering, thread_local};
use crate::task::Runnable;
use std::cell::Cell;
use std::time::Duration;

thread_local! {
    /// The executor and the owner of the task that this thread runs or drops.
    static ON_BEHALF_OF: Cell<Option<(usize, u16)>> = const { Cell::new(None) };
}

impl ExecutorInner {
    /// Runs a task that was taken from the run queue. Returns the time at its end.
    pub(crate) fn run(
        &self,
        executor: &Executor,
        index: SlotIndex,
        now_ns: u64,
        thread: usize,
    ) -> u64 {
        let slot = self.slab.slot(index);
        let begun = slot.state.begin();
        let id = TaskId::new(index, begun.generation);
        if begun.awaited {
            self.awaited.notify(id, !begun.cancelled);
        }
        if begun.cancelled {
            self.drop_task(id, slot, None);
            return self.clock.now_ns();
        }
        let body = slot.cell.lock().body.take();
        let Some(body) = body else {
            self.drop_task(id, slot, None);
            return self.clock.now_ns();
        };
        let runs = slot.runs.load(Ordering::Relaxed);
        slot.runs.store(runs.wrapping_add(1), Ordering::Relaxed);
        slot.begun_ns.store(now_ns, Ordering::Relaxed);
        let context = TaskContext {
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
            RunOutcome::Next(next) => next,
            RunOutcome::Panicked(text) => {
                note_panic(kind, id, &text);
                Next::Done
            }
        };
        let next = if begun.last { Next::Done } else { next };
        self.follow(id, slot, body, next, end_ns);
        end_ns
    }

    /// Applies the result of a run.
    fn follow(&self, id: TaskId, slot: &TaskSlot, body: Option<Runnable>, next: Next, now_ns: u64) {
        let after = match next {
            Next::Done => {
                match body {
                    Some(body) => self.drop_task(id, slot, Some(body)),
                    None => self.vacate(id, slot),
                }
                return;
            }
            Next::Again | Next::Snooze(Duration::ZERO) => {
                slot.cell.lock().body = body;
                slot.state.end_again()
            }
            Next::Snooze(_) | Next::Sleep => {
                // The deadline is stored before the task sleeps, so a timer that sees the task asleep sees its
                // deadline.
                let deadline_ns = match next {
                    Next::Snooze(time) => now_ns.saturating_add(nanos(time)),
                    _ => NEVER,
                };
                slot.deadline_ns.store(deadline_ns, Ordering::Relaxed);
                slot.cell.lock().body = body;
                slot.state.end_asleep()
            }
        };
        if after == AfterRun::Queue {
            self.queue_again(id.index(), now_ns);
        } else {
            self.follow_end(id, slot, after, now_ns);
        }
    }

    /// Acts on the new state after a run whose body is back in the slot.
    pub(crate) fn follow_end(&self, id: TaskId, slot: &TaskSlot, after: AfterRun, now_ns: u64) {
        match after {
            AfterRun::Asleep => self.arm(id.index(), slot, now_ns),
            AfterRun::Queue => self.queue_at(id.index(), now_ns),
            AfterRun::Dead => self.drop_task(id, slot, None),
        }
    }

    /// Withdraws a task that no thread could run yet. The calling thread drops it, so the owner need not wait.
    pub(crate) fn withdraw(&self, id: TaskId, slot: &TaskSlot) {
        let (owner, body) = (slot.owner(), slot.cell.lock().body.take());
        slot.state.free();
        self.slab.give_back(id.index());
        self.owners.on_gone(owner);
        self.end_if_over();
        drop(body);
    }

    /// Drops a task that this thread owns and frees its slot. `body` is given when it is not in the slot.
    fn drop_task(&self, id: TaskId, slot: &TaskSlot, body: Option<Runnable>) {
        let body = body.or_else(|| slot.cell.lock().body.take());
        let owner = slot.owner();
        let panicked = self.on_behalf_of(owner, || body.and_then(Runnable::dispose));
        if let Some(text) = panicked {
            note_panic(self.kinds.get(slot.kind()), id, &text);
        }
        self.vacate(id, slot);
    }

    /// Frees the slot of a dropped task.
    fn vacate(&self, id: TaskId, slot: &TaskSlot) {
        let owner = slot.owner();
        if slot.state.free() {
            self.awaited.notify(id, false);
        }
        self.slab.give_back(id.index());
        self.owners.on_gone(owner);
        self.end_if_over();
    }

    /// Runs code of a task of that owner. The code must not panic.
    fn on_behalf_of<T>(&self, owner: u16, work: impl FnOnce() -> T) -> T {
        let me = Some((self.address(), owner));
        let before = ON_BEHALF_OF.with(|of| of.replace(me));
        let result = work();
        ON_BEHALF_OF.with(|of| of.set(before));
        result
    }

    /// Returns the owner of the task of this executor that this thread runs or drops.
    fn working_for(&self) -> Option<u16> {
        let (executor, owner) = ON_BEHALF_OF.with(Cell::get)?;
        (executor == self.address()).then_some(owner)
    }

    /// Returns an address that identifies the executor.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn note_slow(&self, id: TaskId, slot: &TaskSlot, stats: &KindCounters, run_ns: u64) {
        let expected = stats.kind.expected();
        if run_ns <= nanos(expected) {
            return;
        }
        stats.slow.fetch_add(1, Ordering::Relaxed);
        // A copy, so that callers of `tasks` need not wait until the line is written.
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

    /// Checks a slot whose timer has fired: queues a due task, and arms the timer again for one that is not due.
    pub(crate) fn visit(&self, index: SlotIndex, now_ns: u64) {
        let slot = self.slab.slot(index);
        let view = slot.state.load();
        if view.phase() != Some(TaskPhase::Asleep) {
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

    /// Ends all owners. Returns `true` if the caller waits for them. A task must not wait, because other tasks may do
    /// the same.
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

    /// Rejects further tasks of an owner and ends its tasks.
    fn end_owner(&self, owner: OwnerId, force: bool) {
        let closed = self.owners.close(owner);
        // If another thread is already ending the owner, tasks may still expect last runs, which force does not allow.
        if closed || force && self.owners.is_closing(owner) {
            for id in self.tasks_of(owner) {
                self.end_task(id, force);
            }
            self.drop_queued(owner);
        }
    }

    /// Waits until an owner that was ended has no tasks.
    fn wait_for_end(&self, owner: OwnerId, executor: &Executor) {
        let is_over = || !self.owners.is_closing(owner) || self.tasks_of(owner).next().is_none();
        executor.drive_until(is_over);
        self.owners.wait(is_over);
        self.owners.forget(owner);
    }

    /// Ends the threads after the last task if a task called `shutdown`. Other callers end the threads themselves.
    fn end_if_over(&self) {
        if self.end_of_tasks.load(Ordering::SeqCst) && self.tasks().next().is_none() {
            self.workers.retire(&self.pools);
        }
    }

    /// Iterates over the current tasks and their owners.
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
        if posted == PostResult::Queue {
            self.queue(id.index());
        }
    }

    /// Drops an owner's cancelled tasks that are queued, because a thread of the pool may be late.
    fn drop_queued(&self, owner: OwnerId) {
        let mut taken = Vec::new();
        for pool in &self.pools {
            pool.take_owner(owner.index(), &mut taken);
        }
        for index in taken {
            let slot = self.slab.slot(index);
            let view = slot.state.load();
            if view.is_cancelled() {
                let id = TaskId::new(index, view.generation());
                if slot.state.begin().awaited {
                    self.awaited.notify(id, false);
                }
                self.drop_task(id, slot, None);
            } else {
                self.push(index, self.clock.now_ns());
            }
        }
    }
}

fn note_panic(stats: &KindCounters, id: TaskId, text: &str) {
    stats.panics.fetch_add(1, Ordering::Relaxed);
    tracing::error!(
        kind = stats.kind.name(),
        task = id.get(),
        panic = text,
        "a task panicked and is gone"
    );
}
