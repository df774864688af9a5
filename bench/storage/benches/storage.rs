//! `cargo bench --manifest-path bench/storage/Cargo.toml [-- [--json FILE] [--dir DIR] [direct|logged]]`
//!
//! Prints a table of medians; `QUICK=1` is a shorter run, `--json` writes every sample. `make bench-storage` adds what
//! is measured of whole servers, and the bars, and writes `bench/results/`.

use std::path::Path;

use kedge_bench_common::alloc::Counting;
use kedge_bench_common::arguments::{Arguments, fail, if_quick};
use kedge_bench_common::site::Site;
use kedge_bench_storage::plan::{self, Effort};
use kedge_bench_storage::report;

/// The allocator of the server, with counters.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

const USAGE: &str = "[--json FILE] [--dir DIR] [direct|logged]";
const DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target");

fn main() {
    let given = Arguments::of_process(USAGE, &["--dir"]);
    let effort = if_quick(Effort::QUICK, Effort::FULL);
    let site = Site::new("disk", Path::new(given.value("--dir").unwrap_or(DIR)));
    let measured = plan::run(&site, effort, &given.filter, |round| {
        eprintln!("FlushVBucket: round {} of {}", round + 1, effort.rounds);
    });
    drop(site);
    let samples = measured.unwrap_or_else(|error| fail(&error));
    println!("{}", report::table(&samples));
    given.write_json(&report::json(&effort, &samples));
}
