//! `cargo bench --manifest-path bench/executor/Cargo.toml [-- [--json FILE] [NAME]]`
//!
//! Prints tables of medians; `QUICK=1` is a shorter run, `NAME` a part of the names of the benchmarks to run, `--json`
//! writes every sample. `make bench-executor` adds the bars and writes `bench/results/`.

use kedge_bench_common::arguments::{Arguments, fail, if_quick};
use kedge_bench_executor::alone;
use kedge_bench_executor::plan::{self, Effort};
use kedge_bench_executor::report;
use serde_json::Value;

/// The allocator of the server, for all contenders.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "[--json FILE] [NAME]";

fn main() {
    let given = Arguments::of_process(USAGE, &[alone::FLAG]);
    let effort = if_quick(Effort::QUICK, Effort::FULL);
    // Arguments for the child process.
    if let Some(what) = given.value(alone::FLAG) {
        let figures = alone::run_here(what, effort)
            .unwrap_or_else(|| fail(&format_args!("there is no {what}")));
        println!("{figures}");
        return;
    }

    let groups = plan::groups(&given.filter);
    let samples = plan::run(&groups, effort, |round| {
        eprintln!("round {} of {} or more", round + 1, effort.rounds);
    });
    println!("{}", report::tables(&samples));

    let wanted = alone::ALL
        .iter()
        .filter(|each| each.bench.contains(&given.filter));
    let apart: Value = wanted
        .map(|each| {
            let measured = each.measure();
            println!("{}", each.table(&measured));
            (each.bench, Value::from_iter(measured))
        })
        .collect();
    let complete_at = plan::complete_at(&groups, effort, &samples);
    given.write_json(&report::json(&effort, &samples, &complete_at, &apart));
}
