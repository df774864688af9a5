//! What there is to see of an executor.

use crate::TaskId;
use crate::executor::Executor;
use crate::kind::Pool;
use crate::pool::PoolShared;
use crate::slab::{NEVER, Slot};
use crate::state::{Phase, View};
use crate::stats::{KindInfo, KindStats, PoolInfo, TaskInfo, TaskState};
use crate::sync::Ordering;
use std::time::Duration;

impl Executor {
    /// The pools.
    #[must_use]
    pub fn pools(&self) -> Vec<PoolInfo> {
        self.inner.pools.iter().map(PoolShared::info).collect()
    }

    /// Whether a task of a pool is due and no thread is left for it: who could as well rest on its thread lets it go then.
    #[must_use]
    pub fn lacks_threads(&self, pool: Pool) -> bool {
        self.inner.pools[pool as usize].lacks_threads()
    }

    /// The kinds of which there were tasks, in the order in which they came.
    #[must_use]
    pub fn kinds(&self) -> Vec<KindInfo> {
        self.inner.kinds.iter().map(KindStats::info).collect()
    }

    /// Sets the histograms and counts of all kinds to 0.
    pub fn reset_stats(&self) {
        self.inner.kinds.iter().for_each(KindStats::reset);
    }

    /// The tasks there are. Those that come and go meanwhile may be missing.
    #[must_use]
    pub fn tasks(&self) -> Vec<TaskInfo> {
        let slots = self.inner.slab.iter();
        slots
            .filter_map(|(index, slot)| self.task(index, slot))
            .collect()
    }

    fn task(&self, index: u32, slot: &Slot) -> Option<TaskInfo> {
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
        // The place may belong to another task by now.
        (slot.state.load().generation() == view.generation()).then_some(info)
    }

    fn state(&self, view: View, slot: &Slot) -> Option<TaskState> {
        Some(match view.phase()? {
            Phase::Queued => TaskState::Queued,
            Phase::Running => TaskState::Running,
            Phase::Asleep => {
                let deadline_ns = slot.deadline_ns.load(Ordering::SeqCst);
                let left_ns = deadline_ns.saturating_sub(self.inner.clock.now_ns());
                TaskState::Snoozing((deadline_ns != NEVER).then(|| Duration::from_nanos(left_ns)))
            }
        })
    }
}
