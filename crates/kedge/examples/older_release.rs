//! The release before this one, as far as tests of upgrades need it: a binary that supports one compatibility level less. It
//! refuses maps of the level that it lacks, and writes nothing that needs that level.

use kedge_cluster::{CompatLevel, LevelRange, Release};

fn main() -> std::process::ExitCode {
    let highest = CompatLevel(CompatLevel::HIGHEST.0 - 1);
    kedge::cli::main(Release {
        version: concat!(env!("CARGO_PKG_VERSION"), "-before"),
        levels: LevelRange {
            lowest: CompatLevel(highest.0 - 1).max(CompatLevel::FIRST),
            highest,
        },
    })
}
