//! `cargo bench --manifest-path bench/storage/Cargo.toml [-- [--json FILE] [--dir DIR] [--round N] [NAME]]`
//!
//! Prints a table of medians; `QUICK=1` is a shorter run, `--json` writes every sample, `--round` runs one of the
//! rounds, NAME the kinds with it in their names: `direct-off` has no limit, `logged-on` has one. `make bench-storage`
//! adds the measurements of whole servers, and the bars, and writes `bench/results/`.

use std::path::Path;

use kedge_bench_common::alloc::CountingAllocator;
use kedge_bench_common::arguments::{Arguments, fail, if_quick};
use kedge_bench_common::site::Site;
use kedge_bench_storage::plan::{self, Effort};
use kedge_bench_storage::report;

/// The allocator of the server, with counters.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const USAGE: &str =
    "[--json FILE] [--dir DIR] [--round N] [direct-off|direct-on|logged-off|logged-on]";
const DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target");

fn main() {
    let given = Arguments::of_process(USAGE, &["--dir", "--round"]);
    let effort = if_quick(Effort::QUICK, Effort::FULL);
    let site = Site::new("disk", Path::new(given.value("--dir").unwrap_or(DIR)));
    let rounds = given.value("--round").map_or(0..effort.rounds, |round| {
        let round = round.parse().unwrap_or_else(|_| fail(&USAGE));
        round..round + 1
    });
    let measured = plan::run(&site, effort, &given.filter, rounds, |round| {
        eprintln!("FlushVBucket: round {} of {}", round + 1, effort.rounds);
    });
    drop(site);
    let samples = measured.unwrap_or_else(|error| fail(&error));
    println!("{}", report::table(&samples));
    given.write_json(&report::json(&effort, &samples));
}
