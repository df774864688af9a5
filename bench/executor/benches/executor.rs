//! `cargo bench --manifest-path bench/executor/Cargo.toml [-- [--json FILE] [NAME]]`
//!
//! Prints tables of medians; `QUICK=1` is a shorter run, `NAME` a part of the names of the benchmarks to run, `--json`
//! writes every sample. `make bench-executor` adds the bars and writes `bench/results/`.

use std::process::Command;
use std::time::Duration;
use std::{env, fs};

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

#[derive(Default)]
struct Arguments {
    json: Option<String>,
    filter: String,
    idle: Option<(String, u64)>,
}

fn arguments() -> Arguments {
    let mut given = Arguments::default();
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_else(|| usage(&word));
        match word.as_str() {
            // What cargo says to every benchmark.
            "--bench" => {}
            "--json" => given.json = Some(value()),
            "--idle" => {
                let name = value();
                given.idle = Some((name, value().parse().unwrap_or_else(|_| usage(&word))));
            }
            _ if word.starts_with('-') => usage(&word),
            _ => given.filter = word,
        }
    }
    given
}

fn usage(word: &str) -> ! {
    eprintln!("do not know what to do with {word}; usage: [--json FILE] [NAME]");
    std::process::exit(2);
}

/// Watches an idle pool in a process of its own.
fn watch_idle(name: &str, time: Duration) -> Value {
    // This very program, even when another was built in its place since it was started.
    let this = "/proc/self/exe";
    let seconds = time.as_secs().to_string();
    let child = Command::new(this).args(["--idle", name, &seconds]).output();
    let output = child.expect("a process can be started").stdout;
    serde_json::from_slice(&output).expect("the child prints JSON")
}

fn main() {
    let given = arguments();
    if let Some((name, seconds)) = given.idle {
        let idler = IDLERS.iter().find(|(known, _)| *known == name);
        let (_, watch) = idler.unwrap_or_else(|| usage(&name));
        println!(
            "{}",
            report::idle_json(&watch(Duration::from_secs(seconds)))
        );
        return;
    }

    let quick = env::var("QUICK").is_ok_and(|value| !matches!(value.as_str(), "" | "0"));
    let effort = if quick { Effort::QUICK } else { Effort::FULL };
    let groups = plan::groups(&given.filter);
    let samples = plan::run(&groups, effort, |round| {
        eprintln!("round {} of {}", round + 1, effort.rounds);
    });
    println!("{}", report::tables(&samples));

    let mut idle = Vec::new();
    for (name, _) in IDLERS.iter().filter(|_| "idle".contains(&given.filter)) {
        eprintln!("idle: {name}");
        let value = watch_idle(name, effort.idle);
        println!("idle: {name} {value}");
        idle.push(((*name).to_owned(), value));
    }
    if let Some(path) = given.json {
        let text = report::json(&effort, &samples, &idle).to_string();
        fs::write(&path, text).unwrap_or_else(|error| {
            eprintln!("cannot write {path}: {error}");
            std::process::exit(1);
        });
    }
}
