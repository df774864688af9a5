//! The executor, with tasks that record events.

use std::sync::Arc;

use kedge_executor::{
    Executor, ManualExecutor, Next, OwnerId, Pool, TaskContext, TaskHandle, TaskId, TaskSpec,
    TaskState,
};

use super::{Call, Event, KINDS, OWNERS, Op, Place, Plan};
use crate::support::{Log, OnDrop};

pub(super) struct Real {
    executor: Executor,
    manual: ManualExecutor,
    owners: Vec<OwnerId>,
    shared: Shared,
    handles: Vec<TaskHandle<()>>,
}

/// State that the tasks share.
#[derive(Clone, Default)]
struct Shared {
    events: Log<Event>,
    ids: Arc<std::sync::Mutex<Vec<TaskId>>>,
}

impl Shared {
    fn call(&self, executor: &Executor, call: Call) -> bool {
        let id = |task: usize| {
            let ids = self.ids.lock().unwrap();
            (!ids.is_empty()).then(|| ids[task % ids.len()])
        };
        match call {
            Call::Nothing => false,
            Call::Wake(task) => id(task).is_some_and(|id| executor.wake(id)),
            Call::Cancel(task) => id(task).is_some_and(|id| executor.cancel(id)),
            Call::Snooze(task, time) => id(task).is_some_and(|id| executor.snooze(id, time)),
        }
    }
}

impl Real {
    pub(super) fn new() -> Self {
        let (executor, manual) = ManualExecutor::new();
        let owners = (0..OWNERS).map(|_| executor.register("owner").unwrap());
        Self {
            owners: owners.collect(),
            executor,
            manual,
            shared: Shared::default(),
            handles: Vec::new(),
        }
    }

    /// Performs an operation. Returns the number of runs, or the result of the call as a number.
    pub(super) fn apply(&mut self, op: &Op) -> usize {
        match op {
            Op::Add(plan) => {
                let id = self.add(plan);
                self.shared.ids.lock().unwrap().push(id);
                0
            }
            Op::Call(call) => usize::from(self.shared.call(&self.executor, *call)),
            Op::RunOne(pool) => usize::from(self.manual.run_one(*pool)),
            Op::RunReady => self.manual.run_ready(),
            Op::Advance(time) => self.manual.advance(*time),
            Op::End(owner, force) => {
                self.executor.unregister(self.owners[*owner], *force);
                self.owners[*owner] = self.executor.register("owner").unwrap();
                0
            }
        }
    }

    fn add(&mut self, plan: &Plan) -> TaskId {
        let shared = self.shared.clone();
        let task = shared.ids.lock().unwrap().len();
        let dropped = shared.events.clone();
        let guard = OnDrop::new(move || dropped.note(Event::Dropped(task)));
        let (kind, owner) = (&KINDS[plan.kind], self.owners[plan.owner]);
        let Some(runs) = plan.runs.clone() else {
            let handle = self.executor.submit_as(kind, owner, move || {
                guard.touch();
                let at = std::time::Duration::ZERO;
                shared.events.note(Event::Run {
                    task,
                    at,
                    last: false,
                });
            });
            let id = handle.id().unwrap();
            self.handles.push(handle);
            return id;
        };
        let spec = TaskSpec {
            first_run: plan.first_run,
            wants_last_run: plan.wants_last_run,
            ..TaskSpec::new(kind, owner)
        };
        let mut runs = runs.into_iter();
        let run = move |context: &TaskContext<'_>| {
            guard.touch();
            let (at, last) = (context.now(), context.is_last_run());
            shared.events.note(Event::Run { task, at, last });
            let Some((call, next)) = runs.next() else {
                return Next::Sleep;
            };
            let answer = shared.call(context.executor(), call);
            shared.events.note(Event::Called(answer));
            next
        };
        self.executor.schedule(spec, run).unwrap()
    }

    /// Returns the position of a task's slot: of two tasks that are due at the same time, the lower one is first.
    pub(super) fn place_in_memory(&self, task: usize) -> u64 {
        self.shared.ids.lock().unwrap()[task].get() & u64::from(u32::MAX)
    }

    pub(super) fn take_events(&self) -> Vec<Event> {
        self.shared.events.take()
    }

    /// Returns the states of all tasks, and checks that closures reported their ends.
    pub(super) fn places(&self) -> Vec<Place> {
        let tasks = self.executor.tasks();
        let place = |id: &TaskId| match tasks
            .iter()
            .find(|task| task.id == *id)
            .map(|task| task.state)
        {
            None => Place::Gone,
            Some(TaskState::Snoozing(left)) => {
                Place::Asleep(left.map(|left| self.manual.now() + left))
            }
            Some(TaskState::Queued) => Place::Queued,
            Some(TaskState::Running) => panic!("nothing runs between operations"),
        };
        let ids = self.shared.ids.lock().unwrap();
        for handle in &self.handles {
            let is_gone = place(&handle.id().unwrap()) == Place::Gone;
            assert_eq!(handle.is_finished(), is_gone);
        }
        ids.iter().map(place).collect()
    }

    pub(super) fn queued(&self) -> [usize; 2] {
        let pools = self.executor.pools();
        [Pool::Reader, Pool::NonIo].map(|pool| pools[pool as usize].queued)
    }
}
