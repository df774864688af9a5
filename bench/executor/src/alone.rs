//! Measurements in a process of its own, without threads of other contenders.

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::contenders::{OneScheduler, Ours, SingleMutex};
use crate::plan::Effort;
use crate::pool::{Pool, WholePool};
use crate::report::rounded;
use crate::{idle, lateness};

/// The flag that, followed by `BENCH/CONTENDER`, makes this program such a process, which prints its figures as JSON.
pub const FLAG: &str = "--alone";

type Run = fn(Effort) -> Value;

/// One benchmark.
#[derive(Debug)]
pub struct IsolatedBench {
    /// The name.
    pub bench: &'static str,
    /// The figures, in the order of columns.
    figures: [&'static str; 3],
    contenders: &'static [(&'static str, Run)],
}

/// All benchmarks of this kind.
pub const ALL: [IsolatedBench; 2] = [
    IsolatedBench {
        bench: "idle",
        figures: ["threads", "core_percent", "switches_per_s"],
        contenders: &[
            (Ours::NAME, watch_idle::<Ours>),
            (SingleMutex::NAME, watch_idle::<SingleMutex>),
            (OneScheduler::NAME, watch_idle::<OneScheduler>),
        ],
    },
    IsolatedBench {
        bench: "lateness",
        figures: ["p50_ms", "p99_ms", "max_ms"],
        contenders: &[
            ("kedge_nonio", |effort| {
                watch_timers(&Ours::start_whole(), effort)
            }),
            ("kedge_auxio", |effort| {
                watch_timers(&Ours::start_whole_on_auxio(), effort)
            }),
            (SingleMutex::NAME, |effort| {
                watch_timers(&SingleMutex::start_whole(), effort)
            }),
            (OneScheduler::NAME, |effort| {
                watch_timers(&OneScheduler::start_whole(), effort)
            }),
        ],
    },
];

fn watch_idle<P: WholePool>(effort: Effort) -> Value {
    let idle = idle::run::<P>(effort.idle);
    json!({
        "threads": idle.threads,
        "core_percent": rounded(idle.core_share * 100.0),
        "switches_per_s": rounded(idle.switches_per_s),
    })
}

fn watch_timers<P: WholePool>(pool: &P, effort: Effort) -> Value {
    let late = lateness::run(pool, effort.snoozes);
    json!({
        "p50_ms": rounded(late.p50_ms),
        "p99_ms": rounded(late.p99_ms),
        "max_ms": rounded(late.max_ms),
    })
}

impl IsolatedBench {
    /// Runs a process for each contender, and returns the contenders and their figures.
    ///
    /// # Panics
    /// When one of the processes does.
    #[must_use]
    pub fn measure(&self) -> Vec<(&'static str, Value)> {
        let measure = |name: &str| {
            eprintln!("{}: {name}", self.bench);
            let what = format!("{}/{name}", self.bench);
            // This very program, even if another was built in its place since its start.
            let mut child = Command::new("/proc/self/exe");
            child.args([FLAG, &what]).stderr(Stdio::inherit());
            let output = child.output().expect("a process can be started").stdout;
            serde_json::from_slice(&output).expect("the child prints JSON")
        };
        let names = self.contenders.iter().map(|(name, _)| *name);
        names.map(|name| (name, measure(name))).collect()
    }

    /// Returns the figures as a table: a row for each contender.
    #[must_use]
    pub fn table(&self, measured: &[(&str, Value)]) -> String {
        let mut text = format!("\n{:34}", self.bench);
        for figure in self.figures {
            let _ = write!(text, "{figure:>16}");
        }
        for (contender, values) in measured {
            let _ = write!(text, "\n  {contender:32}");
            for figure in self.figures {
                let value = values[figure].as_f64().unwrap_or(f64::NAN);
                let _ = write!(text, "{value:>16}");
            }
        }
        text
    }
}

/// Runs `BENCH/CONTENDER` in this process; `None` if there is no such measurement.
#[must_use]
pub fn run_here(what: &str, effort: Effort) -> Option<Value> {
    let (bench, contender) = what.split_once('/')?;
    let bench = ALL.iter().find(|known| known.bench == bench)?;
    let mut contenders = bench.contenders.iter();
    let (_, run) = contenders.find(|(name, _)| *name == contender)?;
    Some(run(effort))
}
