//! The statistics of an executor.

use crate::TaskId;
use crate::executor::Executor;
use crate::kind::Pool;
use crate::pool::PoolShared;
use crate::slab::{NEVER, TaskSlot};
use crate::state::{StateWord, TaskPhase};
use crate::stats::{KindCounters, PoolInfo, TaskInfo, TaskKindStats, TaskState};
use crate::sync::Ordering;
use std::time::Duration;

impl Executor {
    /// Returns figures of the pools.
    #[must_use]
    pub fn pools(&self) -> Vec<PoolInfo> {
        self.inner.pools.iter().map(PoolShared::info).collect()
    }

    /// Returns `true` if a due task of the pool has no thread left. A task that blocks its thread should then release
    /// it.
    #[must_use]
    pub fn lacks_threads(&self, pool: Pool) -> bool {
        self.inner.pools[pool as usize].lacks_threads()
    }

    /// Returns figures of all task kinds that have been used, in order of first use.
    #[must_use]
    pub fn kinds(&self) -> Vec<TaskKindStats> {
        self.inner.kinds.iter().map(KindCounters::info).collect()
    }

    /// Resets the histograms and counters of all kinds.
    pub fn reset_stats(&self) {
        self.inner.kinds.iter().for_each(KindCounters::reset);
    }

    /// Lists the current tasks. A task that is created or ends during the call may be missing.
    #[must_use]
    pub fn tasks(&self) -> Vec<TaskInfo> {
        let slots = self.inner.slab.iter();
        slots
            .filter_map(|(index, slot)| self.task(index, slot))
            .collect()
    }

    fn task(&self, index: u32, slot: &TaskSlot) -> Option<TaskInfo> {
        let view = slot.state.load();
        let state = self.state(view, slot)?;
        let kind = self.inner.kinds.get(slot.kind()).kind;
        let info = TaskInfo {
            id: TaskId::new(index, view.generation()),
            owner: self.inner.owners.name(slot.owner()),
            kind: kind.name(),
            pool: kind.pool(),
            priority: kind.priority(),
            description: slot.cell.lock().description.to_string(),
            state,
            runs: slot.runs.load(Ordering::Relaxed),
            run_time: Duration::from_nanos(slot.run_ns.load(Ordering::Relaxed)),
            last_run: Duration::from_nanos(slot.last_run_ns.load(Ordering::Relaxed)),
            runs_for: (state == TaskState::Running).then(|| {
                let begun_ns = slot.begun_ns.load(Ordering::Relaxed);
                Duration::from_nanos(self.inner.clock.now_ns().saturating_sub(begun_ns))
            }),
        };
        // The slot may belong to another task by now.
        (slot.state.load().generation() == view.generation()).then_some(info)
    }

    fn state(&self, view: StateWord, slot: &TaskSlot) -> Option<TaskState> {
        Some(match view.phase()? {
            TaskPhase::Queued => TaskState::Queued,
            TaskPhase::Running => TaskState::Running,
            TaskPhase::Asleep => {
                let deadline_ns = slot.deadline_ns.load(Ordering::SeqCst);
                let left_ns = deadline_ns.saturating_sub(self.inner.clock.now_ns());
                TaskState::Snoozing((deadline_ns != NEVER).then(|| Duration::from_nanos(left_ns)))
            }
        })
    }
}
