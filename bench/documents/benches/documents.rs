//! `cargo bench --manifest-path bench/documents/Cargo.toml [-- [--json FILE] [NAME]]`
//!
//! Prints a table of medians; `QUICK=1` is a shorter run, `NAME` a part of the names of the measurements, `--json`
//! writes every sample. `make bench-documents` adds the bars, and writes `bench/results/`.

use kedge_bench_common::alloc::CountingAllocator;
use kedge_bench_common::arguments::{Arguments, if_quick};
use kedge_bench_documents::plan::{self, Effort};
use kedge_bench_documents::report;

/// The allocator of the server, with counters.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn main() {
    let given = Arguments::of_process("[--json FILE] [NAME]", &[]);
    let effort = if_quick(Effort::QUICK, Effort::FULL);
    let (document_bytes, samples) = plan::run(effort, &given.filter);
    println!("{}", report::table(&samples));
    given.write_json(&report::json(&effort, document_bytes, &samples));
}
