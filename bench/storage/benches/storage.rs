//! `cargo bench --manifest-path bench/storage/Cargo.toml [-- [--json FILE] [--dir DIR] [direct|logged]]`
//!
//! Prints a table of medians; `QUICK=1` is a shorter run, `--json` writes every sample. `make bench-storage` adds what
//! is measured of whole servers, and the bars, and writes `bench/results/`.

use std::path::{Path, PathBuf};
use std::{env, fs, process};

use kedge_bench_common::alloc::Counting;
use kedge_bench_common::site::Site;
use kedge_bench_storage::plan::{self, Effort};
use kedge_bench_storage::report;

/// The allocator of the server, with counters.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Arguments {
    json: Option<String>,
    filter: String,
    dir: PathBuf,
}

fn arguments() -> Arguments {
    let mut given = Arguments {
        json: None,
        filter: String::new(),
        dir: Path::new(env!("CARGO_MANIFEST_DIR")).join("target"),
    };
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_else(|| usage(&word));
        match word.as_str() {
            // What cargo says to every benchmark.
            "--bench" => {}
            "--json" => given.json = Some(value()),
            "--dir" => given.dir = value().into(),
            _ if word.starts_with('-') => usage(&word),
            _ => given.filter = word,
        }
    }
    given
}

fn usage(word: &str) -> ! {
    fail(&format!(
        "do not know what to do with {word}; usage: [--json FILE] [--dir DIR] [direct|logged]"
    ))
}

fn main() {
    let given = arguments();
    let quick = env::var("QUICK").is_ok_and(|value| !matches!(value.as_str(), "" | "0"));
    let effort = if quick { Effort::QUICK } else { Effort::FULL };
    let name = format!("kedge-bench-{}", process::id());
    let site = Site::new("disk", &given.dir.join(name));
    let measured = plan::run(&site, effort, &given.filter, |round| {
        eprintln!("FlushVBucket: round {} of {}", round + 1, effort.rounds);
    });
    drop(site);
    let samples = measured.unwrap_or_else(|error| fail(&error.to_string()));
    println!("{}", report::table(&samples));
    if let Some(path) = given.json {
        let text = report::json(&effort, &samples).to_string();
        fs::write(&path, text)
            .unwrap_or_else(|error| fail(&format!("cannot write {path}: {error}")));
    }
}

fn fail(message: &str) -> ! {
    eprintln!("{message}");
    process::exit(1);
}
