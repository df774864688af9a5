//! Chores of the repository. `cargo run -p xtask -- tidy` checks what the compiler does not; `mutants` breaks rules of the
//! code on purpose, and sees whether the simulation finds it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};

mod mutants;
mod tidy;

const USAGE: &str = "usage: cargo run -p xtask -- tidy [ROOT] | mutants";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs one chore and returns how many findings it had. The exit code is 0 for none, 1 for some, 2 when the chore
/// itself could not run.
fn run(args: &[String]) -> anyhow::Result<usize> {
    match args {
        [chore] if chore == "tidy" => run_tidy(&repository_root()?),
        [chore, root] if chore == "tidy" => run_tidy(Path::new(root)),
        [chore] if chore == "mutants" => mutants::run(&repository_root()?),
        _ => bail!(USAGE),
    }
}

fn run_tidy(root: &Path) -> anyhow::Result<usize> {
    let report = tidy::check(root)?;
    let mut out = std::io::stdout().lock();
    for finding in &report.findings {
        writeln!(out, "{finding}")?;
    }
    let count = report.findings.len();
    if count == 0 {
        writeln!(
            out,
            "tidy: ok, {} manifests and {} files",
            report.manifests, report.files
        )?;
    } else {
        writeln!(out, "tidy: {count} findings")?;
    }
    Ok(count)
}

/// The directory above this package: where the workspace's manifest lies.
fn repository_root() -> anyhow::Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(here
        .parent()
        .context("xtask lies at the root of a file system")?
        .to_path_buf())
}
