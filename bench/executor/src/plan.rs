//! The cells, and their order.
//!
//! Cells with the same benchmark and the same number of threads form a group; the contenders of a group run one after the
//! other, in an order that changes from round to round, so that neighbours in time see the same machine.

use std::time::Duration;

use crate::contenders::{
    Crossbeam, OneScheduler, Ours, Rayon, SingleMutex, Threadpool, TokioSpawn, TokioSpawnBlocking,
};
use crate::floor::{self, Distance};
use crate::long_lived::{self, Wake};
use crate::measure::{Outcome, Window};
use crate::one_shot::{self, ResultNotice};
use crate::pool::{Pool, TaskPool};
use crate::timeouts;

/// The name of the benchmark to which others are compared.
pub const FLOOR: &str = "floor";
/// The number of front threads, and of pool threads.
pub const THREADS: [usize; 5] = [1, 2, 4, 8, 16];
/// The total number of tasks of LongLived.
pub const LONG_LIVED: [usize; 2] = [16, 64];
/// The number of snoozed tasks.
pub const TIMEOUTS: [usize; 3] = [1_000, 4_096, 30_000];

/// The limit of rounds, as a multiple of those of the effort, if the distance of the processors changes.
const PATIENCE: usize = 3;

/// The number of repetitions of a cell during which the distance changed.
const TRIES: usize = 5;

/// The extent of the measurements.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Samples per cell.
    pub rounds: usize,
    /// The duration of each sample.
    pub window: Window,
    /// The duration of the idle measurement.
    pub idle: Duration,
    /// The number of timers whose lateness is measured.
    pub snoozes: usize,
}

impl Effort {
    /// The effort for published figures.
    pub const FULL: Self = Self {
        rounds: 5,
        window: Window {
            warm_up: Duration::from_millis(60),
            measured: Duration::from_millis(450),
        },
        idle: Duration::from_secs(10),
        snoozes: 1_000,
    };

    /// The effort for a short run.
    pub const QUICK: Self = Self {
        rounds: 3,
        window: Window {
            warm_up: Duration::from_millis(20),
            measured: Duration::from_millis(80),
        },
        idle: Duration::from_secs(3),
        snoozes: 150,
    };
}

/// The figures of one run of a cell.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// The figures of all benchmarks.
    pub outcome: Outcome,
    /// A figure of TimeoutAddCancel only.
    pub settled_per_s: Option<f64>,
}

impl From<Outcome> for Measured {
    fn from(outcome: Outcome) -> Self {
        Self {
            outcome,
            settled_per_s: None,
        }
    }
}

type Run = Box<dyn Fn(Window) -> Option<Measured>>;

/// Cells that are compared with each other.
pub struct Group {
    /// Name of the benchmark.
    pub bench: String,
    /// Threads, or tasks of TimeoutAddCancel.
    pub size: usize,
    cells: Vec<(&'static str, Run)>,
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.bench, self.size)
    }
}

/// One figure with its origin.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Name of the benchmark.
    pub bench: String,
    /// Threads, or tasks of TimeoutAddCancel.
    pub size: usize,
    /// The contender.
    pub contender: &'static str,
    /// The round, from 0.
    pub round: usize,
    /// The distance before the cell and after it.
    pub distance: Distance,
    /// The figures.
    pub measured: Measured,
}

/// Returns all groups whose benchmark's name contains `filter`.
#[must_use]
pub fn groups(filter: &str) -> Vec<Group> {
    let mut groups = vec![floors()];
    for (name, notice) in [
        ("handle", ResultNotice::Handle),
        ("condvar", ResultNotice::Condvar),
    ] {
        for threads in THREADS {
            groups.push(one_shots(&format!("oneshot_{name}"), threads, notice));
            groups.push(busy_one_shots(&format!("busy_{name}"), threads, notice));
        }
    }
    for tasks in LONG_LIVED {
        for (name, wake) in [("wake", Wake::Post), ("wake_and_wait", Wake::AndWait)] {
            for threads in THREADS {
                groups.push(long_lived(
                    &format!("longlived_{tasks}_{name}"),
                    threads,
                    tasks,
                    wake,
                    false,
                ));
            }
        }
    }
    let [tasks, _] = LONG_LIVED;
    for threads in THREADS {
        let bench = format!("busy_longlived_{tasks}");
        groups.push(long_lived(&bench, threads, tasks, Wake::Post, true));
    }
    groups.extend(TIMEOUTS.map(|tasks| timeouts("timeouts", tasks, false)));
    groups.extend(TIMEOUTS.map(|tasks| timeouts("busy_timeouts", tasks, true)));
    groups.retain(|group| group.bench.contains(filter));
    groups
}

fn floors() -> Group {
    let cells = floor::CASES.map(|case| {
        let run: Run = Box::new(move |window| floor::run(case, window).map(Measured::from));
        (case.name, run)
    });
    Group {
        bench: FLOOR.to_owned(),
        size: 2,
        cells: cells.into(),
    }
}

fn one_shot<P: Pool>(threads: usize, notice: ResultNotice, busy: bool) -> (&'static str, Run) {
    let run = move |window| Some(one_shot::run::<P>(threads, notice, busy, window).into());
    (P::NAME, Box::new(run))
}

fn one_shots(bench: &str, threads: usize, notice: ResultNotice) -> Group {
    Group {
        bench: bench.to_owned(),
        size: threads,
        cells: vec![
            one_shot::<Ours>(threads, notice, false),
            one_shot::<SingleMutex>(threads, notice, false),
            one_shot::<OneScheduler>(threads, notice, false),
            one_shot::<Crossbeam>(threads, notice, false),
            one_shot::<TokioSpawn>(threads, notice, false),
            one_shot::<TokioSpawnBlocking>(threads, notice, false),
            one_shot::<Rayon>(threads, notice, false),
            one_shot::<Threadpool>(threads, notice, false),
        ],
    }
}

/// Returns the group of pools with task semantics, while other threads keep all cores busy.
fn busy_one_shots(bench: &str, threads: usize, notice: ResultNotice) -> Group {
    Group {
        bench: bench.to_owned(),
        size: threads,
        cells: vec![
            one_shot::<Ours>(threads, notice, true),
            one_shot::<SingleMutex>(threads, notice, true),
            one_shot::<OneScheduler>(threads, notice, true),
        ],
    }
}

fn long_lived(bench: &str, threads: usize, tasks: usize, wake: Wake, busy: bool) -> Group {
    fn cell<P: TaskPool>(
        threads: usize,
        tasks: usize,
        wake: Wake,
        busy: bool,
    ) -> (&'static str, Run) {
        let run =
            move |window| Some(long_lived::run::<P>(threads, tasks, wake, busy, window).into());
        (P::NAME, Box::new(run))
    }
    Group {
        bench: bench.to_owned(),
        size: threads,
        cells: vec![
            cell::<Ours>(threads, tasks, wake, busy),
            cell::<SingleMutex>(threads, tasks, wake, busy),
            cell::<OneScheduler>(threads, tasks, wake, busy),
        ],
    }
}

fn timeouts(bench: &str, tasks: usize, busy: bool) -> Group {
    fn cell<P: TaskPool>(tasks: usize, busy: bool) -> (&'static str, Run) {
        let run = move |window| {
            let given = timeouts::run::<P>(tasks, busy, window);
            Some(Measured {
                outcome: given.outcome,
                settled_per_s: Some(given.settled_per_s),
            })
        };
        (P::NAME, Box::new(run))
    }
    Group {
        bench: bench.to_owned(),
        size: tasks,
        cells: vec![
            cell::<Ours>(tasks, busy),
            cell::<SingleMutex>(tasks, busy),
            cell::<OneScheduler>(tasks, busy),
        ],
    }
}

/// Runs all groups, round by round; `tell` is called for each round. There are as many rounds as the effort says. If
/// the distance of the processors changes, there are more, until every cell was measured often enough at both, or
/// [`PATIENCE`] is exhausted. Samples are in the order of the groups and their cells, and within a cell in that of the
/// rounds.
pub fn run(groups: &[Group], effort: Effort, tell: impl Fn(usize)) -> Vec<Sample> {
    let mut samples: Vec<Sample> = Vec::new();
    for round in 0..effort.rounds * PATIENCE {
        let complete = complete_at(groups, effort, &samples);
        let seen = |distance| samples.iter().any(|sample| sample.distance == distance);
        let is_open = |distance: &Distance| seen(*distance) && !complete.contains(distance);
        if round >= effort.rounds && !Distance::ALL.iter().any(is_open) {
            break;
        }
        tell(round);
        for group in groups {
            group.run(effort, round, &mut samples);
        }
    }
    samples.sort_by_cached_key(|sample| place(groups, sample));
    samples
}

/// Returns the index of the cell of a sample among all.
fn place(groups: &[Group], sample: &Sample) -> Option<usize> {
    let mut cells = groups
        .iter()
        .flat_map(|group| group.cells.iter().map(move |(who, _)| (group, *who)));
    cells.position(|(group, who)| group.has(who, sample))
}

/// Returns the distances at which every cell has at least half of the rounds.
#[must_use]
pub fn complete_at(groups: &[Group], effort: Effort, samples: &[Sample]) -> Vec<Distance> {
    let enough = effort.rounds.div_ceil(2);
    let mut distances = Distance::ALL.to_vec();
    distances.retain(|distance| {
        groups
            .iter()
            .all(|group| group.least_seen(*distance, samples) >= enough)
    });
    distances
}

impl Group {
    /// Returns whether it is a sample of this contender here.
    fn has(&self, contender: &str, sample: &Sample) -> bool {
        sample.bench == self.bench && sample.size == self.size && sample.contender == contender
    }

    /// Returns the lowest number of samples of a contender. Cells that the machine cannot run do not count.
    fn least_seen(&self, distance: Distance, samples: &[Sample]) -> usize {
        let seen = |contender| {
            let of_cell = samples.iter().filter(|sample| self.has(contender, sample));
            let at_distance = of_cell.clone().filter(|it| it.distance == distance);
            (of_cell.count() > 0).then(|| at_distance.count())
        };
        let counts = self.cells.iter().filter_map(|(name, _)| seen(*name));
        counts.min().unwrap_or(0)
    }

    /// Runs every contender once, unless all were measured often enough at the current distance.
    fn run(&self, effort: Effort, round: usize, samples: &mut Vec<Sample>) {
        let mut distance = Distance::now();
        if self.least_seen(distance, samples) >= effort.rounds {
            return;
        }
        let contenders = self.cells.len();
        for turn in 0..contenders {
            let (contender, cell) = &self.cells[(turn + round) % contenders];
            let mut measured = None;
            for _ in 0..TRIES {
                let before = distance;
                measured = cell(effort.window);
                distance = Distance::now();
                if distance == before {
                    break;
                }
            }
            samples.extend(measured.map(|measured| Sample {
                bench: self.bench.clone(),
                size: self.size,
                contender,
                round,
                distance,
                measured,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// They were in the order of execution, which changes from round to round.
    #[test]
    fn samples_follow_the_order_of_the_plan() {
        let mut groups = groups("busy_longlived");
        groups.truncate(2);
        let effort = Effort {
            rounds: 2,
            window: Window {
                warm_up: Duration::from_millis(1),
                measured: Duration::from_millis(2),
            },
            ..Effort::QUICK
        };
        let samples = run(&groups, effort, |_| {});
        let mut cells: Vec<_> = samples
            .iter()
            .map(|sample| (sample.size, sample.contender))
            .collect();
        cells.dedup();
        let contenders = ["kedge", "single_mutex", "one_scheduler"];
        let planned = [1, 2].map(|threads| contenders.map(|who| (threads, who)));
        assert_eq!(cells, planned.concat());
    }
}
