//! Hashes of passwords that logins have proven, for users who have none of the present cost: those of an earlier release, of
//! an earlier setting, or whose password was set on another node of the cluster.
//!
//! Invariants:
//! * No login waits for the disk: a task saves the hashes.
//! * Each user has one waiting hash at most.
//! * While hashes wait, the task runs or is scheduled, from [`HashUpgrades::save_by`] on; the first added one wakes it.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use kedge_auth::HashUpgrade;
use kedge_executor::{Executor, Next, ScheduleError, TaskContext, TaskId, TaskSpec};
use kedge_sync::{RankedMutex, ranks::HashUpgradesWaiting};

use crate::pools::TaskPools;
use crate::tasks::PASSWORD_HASHES;

/// The hashes that wait to be saved, by user, and the task that saves them.
#[derive(Default)]
pub(crate) struct HashUpgrades {
    waiting: RankedMutex<HashUpgradesWaiting, BTreeMap<String, HashUpgrade>>,
    task: OnceLock<(Executor, TaskId)>,
}

impl HashUpgrades {
    /// Starts the task that hands waiting hashes to `save`. It ends with the executor; hashes that wait then are lost, and
    /// made again at later logins.
    pub(crate) fn save_by(
        &self,
        pools: &TaskPools,
        save: impl Fn() + Send + 'static,
    ) -> Result<(), ScheduleError> {
        let spec = TaskSpec {
            description: "saves hashes of passwords that logins have proven".into(),
            ..TaskSpec::new(&PASSWORD_HASHES, pools.owner())
        };
        let executor = pools.executor();
        let task = move |_: &TaskContext<'_>| {
            save();
            Next::Sleep
        };
        let id = executor.schedule(spec, task)?;
        let _ = self.task.set((executor.clone(), id));
        // Hashes in the meantime woke no task.
        executor.wake(id);
        Ok(())
    }

    /// Adds a hash.
    pub(crate) fn put(&self, upgrade: HashUpgrade) {
        let is_first = {
            let mut waiting = self.waiting.lock();
            waiting.insert(upgrade.id().to_owned(), upgrade);
            waiting.len() == 1
        };
        if is_first && let Some((executor, id)) = self.task.get() {
            executor.wake(*id);
        }
    }

    /// Takes all waiting hashes.
    pub(crate) fn take(&self) -> Vec<HashUpgrade> {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.into_values().collect()
    }
}
