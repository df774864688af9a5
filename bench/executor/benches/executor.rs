//! `cargo bench --manifest-path bench/executor/Cargo.toml [-- [--json FILE] [NAME]]`
//!
//! Prints tables of medians; `QUICK=1` is a shorter run, `NAME` a part of the names of the benchmarks to run, `--json`
//! writes every sample. `make bench-executor` adds the bars and writes `bench/results/`.

use std::process::Command;
use std::time::Duration;

use kedge_bench_common::arguments::{Arguments, fail, if_quick};
use kedge_bench_executor::contenders::{OneScheduler, Ours, SingleMutex};
use kedge_bench_executor::idle::{self, Idle};
use kedge_bench_executor::plan::{self, Effort};
use kedge_bench_executor::pool::Pool;
use kedge_bench_executor::report;
use serde_json::Value;

/// The allocator of the server, for all contenders.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Watch = fn(Duration) -> Idle;

const IDLERS: [(&str, Watch); 3] = [
    (Ours::NAME, idle::run::<Ours>),
    (SingleMutex::NAME, idle::run::<SingleMutex>),
    (OneScheduler::NAME, idle::run::<OneScheduler>),
];

const USAGE: &str = "[--json FILE] [NAME]";

/// Watches an idle pool in a process of its own.
fn watch_idle(name: &str) -> Value {
    // This very program, even when another was built in its place since it was started.
    let this = "/proc/self/exe";
    let child = Command::new(this).args(["--idle", name]).output();
    let output = child.expect("a process can be started").stdout;
    serde_json::from_slice(&output).expect("the child prints JSON")
}

fn main() {
    let given = Arguments::of_process(USAGE, &["--idle"]);
    let effort = if_quick(Effort::QUICK, Effort::FULL);
    // What this program tells the one that it starts.
    if let Some(name) = given.value("--idle") {
        let idler = IDLERS.iter().find(|(known, _)| *known == name);
        let (_, watch) = idler.unwrap_or_else(|| fail(&format_args!("there is no pool {name}")));
        println!("{}", report::idle_json(&watch(effort.idle)));
        return;
    }

    let groups = plan::groups(&given.filter);
    let samples = plan::run(&groups, effort, |round| {
        eprintln!("round {} of {} or more", round + 1, effort.rounds);
    });
    println!("{}", report::tables(&samples));

    let mut idle = Vec::new();
    for (name, _) in IDLERS.iter().filter(|_| "idle".contains(&given.filter)) {
        eprintln!("idle: {name}");
        let value = watch_idle(name);
        println!("idle: {name} {value}");
        idle.push(((*name).to_owned(), value));
    }
    let complete_at = plan::complete_at(&groups, effort, &samples);
    given.write_json(&report::json(&effort, &samples, &complete_at, &idle));
}
