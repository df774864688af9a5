//! `cargo bench --manifest-path bench/couchstore/Cargo.toml [-- [--json FILE] [--dir DIR] [--tmpfs DIR] [NAME]]`
//!
//! Prints a table of medians; `QUICK=1` is a shorter run, `NAME` a part of the names of the measurements, `--json`
//! writes every sample. `make bench-couchstore` adds the original's figures and the bars, and writes `bench/results/`.

use std::path::Path;

use kedge_bench_common::alloc::CountingAllocator;
use kedge_bench_common::arguments::{Arguments, fail, if_quick};
use kedge_bench_common::site::Site;
use kedge_bench_couchstore::plan::{self, Effort};
use kedge_bench_couchstore::report;

/// The allocator of the server, with counters.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const USAGE: &str = "[--json FILE] [--dir DIR] [--tmpfs DIR] [NAME]";
const DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target");
const TMPFS: &str = "/dev/shm";

fn main() {
    let given = Arguments::of_process(USAGE, &["--dir", "--tmpfs"]);
    let effort = if_quick(Effort::QUICK, Effort::FULL);
    let dir = Path::new(given.value("--dir").unwrap_or(DIR));
    let tmpfs = Path::new(given.value("--tmpfs").unwrap_or(TMPFS));
    let mut sites = vec![Site::new("disk", dir)];
    if tmpfs.is_dir() {
        sites.push(Site::new("tmpfs", tmpfs));
    } else {
        eprintln!("there is no {}", tmpfs.display());
    }
    let measured = plan::run(&sites, effort, &given.filter, |round, site| {
        eprintln!("round {} of {}: {site}", round + 1, effort.rounds);
    });
    drop(sites);
    let samples = measured.unwrap_or_else(|error| fail(&error));
    println!("{}", report::table(&samples));
    given.write_json(&report::json(&effort, &samples));
}
