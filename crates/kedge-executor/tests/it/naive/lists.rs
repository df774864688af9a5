//! A naive executor that searches lists.

use std::time::Duration;

use kedge_executor::{Next, Pool, STARVATION_LIMIT};

use super::{Call, Event, KINDS, Op, Place, Plan};

const READER: usize = 0;
const NONIO: usize = 1;
/// The pools, in the order in which they are served.
const POOLS: [Pool; 2] = [Pool::Reader, Pool::NonIo];

#[derive(Debug)]
struct Task {
    plan: Plan,
    place: Place,
    memory: u64,
    runs: usize,
    running: bool,
    woken: bool,
    cancelled: bool,
    last: bool,
}

#[derive(Debug)]
pub(super) struct Lists {
    now: Duration,
    tasks: Vec<Task>,
    /// Queued tasks by pool, in order of arrival.
    queues: [Vec<usize>; 2],
    /// Owners with queued tasks in round-robin order, by pool and priority.
    turns: [[Vec<usize>; 3]; 2],
    /// Number of times that a priority was passed over, by pool.
    passed: [[u32; 3]; 2],
    events: Vec<Event>,
}

impl Default for Lists {
    fn default() -> Self {
        Self {
            // The manual clock starts there.
            now: Duration::from_nanos(1),
            tasks: Vec::new(),
            queues: Default::default(),
            turns: Default::default(),
            passed: Default::default(),
            events: Vec::new(),
        }
    }
}

impl Lists {
    pub(super) fn apply(&mut self, op: &Op, memory: impl Fn(usize) -> u64) -> usize {
        match op {
            Op::Add(plan) => {
                self.add(plan, memory(self.tasks.len()));
                0
            }
            Op::Call(call) => usize::from(self.call(*call)),
            Op::RunOne(pool) => usize::from(self.run_one(pool_of(*pool))),
            Op::RunReady => self.run_ready(),
            Op::Advance(time) => self.advance(*time),
            Op::End(owner, force) => {
                self.end(*owner, *force);
                0
            }
        }
    }

    fn add(&mut self, plan: &Plan, memory: u64) {
        let first_run = if plan.runs.is_some() {
            plan.first_run
        } else {
            Some(Duration::ZERO)
        };
        let place = match first_run {
            Some(Duration::ZERO) => Place::Queued,
            other => Place::Asleep(other.map(|time| self.now + time)),
        };
        self.tasks.push(Task {
            plan: plan.clone(),
            place,
            memory,
            runs: 0,
            running: false,
            woken: false,
            cancelled: false,
            last: false,
        });
        if place == Place::Queued {
            self.queue(self.tasks.len() - 1);
        }
    }

    fn call(&mut self, call: Call) -> bool {
        let (Call::Wake(task) | Call::Cancel(task) | Call::Snooze(task, _)) = call else {
            return false;
        };
        if self.tasks.is_empty() {
            return false;
        }
        let nth = task % self.tasks.len();
        let now = self.now;
        let task = &mut self.tasks[nth];
        if task.place == Place::Gone || task.cancelled {
            return false;
        }
        let asleep = matches!(task.place, Place::Asleep(_));
        match call {
            Call::Snooze(_, time) => {
                if asleep {
                    task.place = Place::Asleep(Some(now + time));
                }
                return asleep;
            }
            Call::Cancel(_) => task.cancelled = true,
            _ => task.woken = task.running,
        }
        if asleep {
            self.queue(nth);
        }
        true
    }

    /// Queues a task.
    fn queue(&mut self, task: usize) {
        let (pool, priority, owner) = self.class(task);
        self.tasks[task].place = Place::Queued;
        self.queues[pool].push(task);
        if !self.turns[pool][priority].contains(&owner) {
            self.turns[pool][priority].push(owner);
        }
    }

    fn class(&self, task: usize) -> (usize, usize, usize) {
        let plan = &self.tasks[task].plan;
        let kind = &KINDS[plan.kind];
        (pool_of(kind.pool()), kind.priority() as usize, plan.owner)
    }

    /// Removes the first task of that priority and owner.
    fn take(&mut self, pool: usize, priority: usize, owner: usize) -> Option<usize> {
        let is_it = |task: &usize| self.class(*task) == (pool, priority, owner);
        let at = self.queues[pool].iter().position(is_it)?;
        Some(self.queues[pool].remove(at))
    }

    fn pop(&mut self, pool: usize) -> Option<usize> {
        let waits = |priority: &usize| !self.turns[pool][*priority].is_empty();
        let starves = |priority: &usize| self.passed[pool][*priority] >= STARVATION_LIMIT;
        let mut waiting = (0..3).filter(waits);
        let first = waiting.clone().find(starves).or_else(|| waiting.next())?;
        for lower in (first + 1..3).filter(waits).collect::<Vec<_>>() {
            self.passed[pool][lower] += 1;
        }
        self.passed[pool][first] = 0;
        let owner = self.turns[pool][first].remove(0);
        let task = self.take(pool, first, owner);
        if self.queues[pool]
            .iter()
            .any(|task| self.class(*task) == (pool, first, owner))
        {
            self.turns[pool][first].push(owner);
        }
        task
    }

    fn run_one(&mut self, pool: usize) -> bool {
        let Some(task) = self.pop(pool) else {
            return false;
        };
        self.run(task);
        true
    }

    fn run(&mut self, nth: usize) {
        let at = self.now;
        let task = &mut self.tasks[nth];
        if task.cancelled {
            self.remove(nth);
            return;
        }
        let last = task.last;
        let Some(runs) = &task.plan.runs else {
            let at = Duration::ZERO;
            self.events.push(Event::Run {
                task: nth,
                at,
                last,
            });
            self.remove(nth);
            return;
        };
        let step = runs.get(task.runs).copied();
        task.runs += 1;
        (task.running, task.woken) = (true, false);
        self.events.push(Event::Run {
            task: nth,
            at,
            last,
        });
        let mut next = Next::Sleep;
        if let Some((call, then)) = step {
            let answer = self.call(call);
            self.events.push(Event::Called(answer));
            next = then;
        }
        self.follow(nth, if last { Next::Done } else { next });
    }

    fn follow(&mut self, nth: usize, next: Next) {
        let task = &mut self.tasks[nth];
        task.running = false;
        if task.cancelled || next == Next::Done {
            self.remove(nth);
        } else if task.woken || matches!(next, Next::Again | Next::Snooze(Duration::ZERO)) {
            self.queue(nth);
        } else {
            let until = if let Next::Snooze(time) = next {
                Some(self.now + time)
            } else {
                None
            };
            task.place = Place::Asleep(until);
        }
    }

    fn remove(&mut self, task: usize) {
        self.tasks[task].place = Place::Gone;
        self.events.push(Event::Dropped(task));
    }

    fn run_any(&mut self) -> bool {
        (0..POOLS.len()).any(|pool| self.run_one(pool))
    }

    fn run_ready(&mut self) -> usize {
        let mut runs = 0;
        while self.run_any() {
            runs += 1;
        }
        runs
    }

    /// Returns the sleeping tasks, earliest deadline first.
    fn sleepers(&self) -> Vec<(Duration, u64, usize)> {
        let tasks = self.tasks.iter().enumerate();
        let mut sleepers: Vec<_> = tasks
            .filter_map(|(nth, task)| match task.place {
                Place::Asleep(Some(until)) => Some((until, task.memory, nth)),
                _ => None,
            })
            .collect();
        sleepers.sort_unstable();
        sleepers
    }

    fn advance(&mut self, time: Duration) -> usize {
        let end = self.now + time;
        let mut runs = self.run_ready();
        loop {
            let sleepers = self.sleepers();
            let due = sleepers.iter().filter(|(until, ..)| *until <= self.now);
            for (.., task) in due.copied().collect::<Vec<_>>() {
                self.queue(task);
            }
            let ran = self.run_ready();
            runs += ran;
            if ran > 0 {
                continue;
            }
            if self.now == end {
                return runs;
            }
            let next = sleepers.first().map_or(end, |(until, ..)| *until);
            self.now = next.min(end);
        }
    }

    fn end(&mut self, owner: usize, force: bool) {
        let is_of = |task: &Task| task.plan.owner == owner && task.place != Place::Gone;
        let tasks = self
            .tasks
            .iter()
            .enumerate()
            .filter(|(_, task)| is_of(task));
        let mut tasks: Vec<_> = tasks.map(|(nth, task)| (task.memory, nth)).collect();
        tasks.sort_unstable();
        for (_, nth) in tasks {
            let task = &mut self.tasks[nth];
            let wants_last_run = task.plan.wants_last_run && task.plan.runs.is_some();
            if !force && wants_last_run && !task.cancelled {
                task.last = true;
            } else {
                task.cancelled = true;
            }
            if matches!(task.place, Place::Asleep(_)) {
                self.queue(nth);
            }
        }
        self.strip(owner);
        while self.tasks.iter().any(is_of) {
            assert!(self.run_any(), "what is left has its last run to come");
        }
    }

    /// Drops the cancelled tasks of an owner. Tasks with a last run are queued last.
    fn strip(&mut self, owner: usize) {
        let mut stripped = Vec::new();
        for pool in [READER, NONIO] {
            for priority in 0..3 {
                while let Some(task) = self.take(pool, priority, owner) {
                    stripped.push(task);
                }
                let turns = &mut self.turns[pool][priority];
                turns.retain(|other| *other != owner);
                if turns.is_empty() {
                    self.passed[pool][priority] = 0;
                }
            }
        }
        for task in stripped {
            if self.tasks[task].cancelled {
                self.remove(task);
            } else {
                self.queue(task);
            }
        }
    }

    pub(super) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    pub(super) fn places(&self) -> Vec<Place> {
        self.tasks.iter().map(|task| task.place).collect()
    }

    pub(super) fn queued(&self) -> [usize; 2] {
        [READER, NONIO].map(|pool| self.queues[pool].len())
    }
}

fn pool_of(pool: Pool) -> usize {
    let is_it = |other: &Pool| *other == pool;
    POOLS.iter().position(is_it).expect("kinds are of these")
}
