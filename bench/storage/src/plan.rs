//! Which flushes there are, and the order in which they run.

use std::ops::Range;

use kedge_bench_common::measure::Taken;
use kedge_bench_common::site::Site;
use kedge_storage::StorageError;

use crate::flush::{self, Limit, Mode};

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// How often everything runs.
    pub rounds: u32,
    /// Changes that wait, and how often in a round.
    flushes: &'static [(u32, u32)],
}

impl Effort {
    /// What figures are published from.
    pub const FULL: Self = Self {
        rounds: 5,
        flushes: &[
            (1, 20),
            (10, 20),
            (100, 20),
            (1000, 10),
            (10_000, 5),
            (100_000, 2),
            (1_000_000, 1),
        ],
    };

    /// A look.
    pub const QUICK: Self = Self {
        rounds: 1,
        flushes: &[
            (1, 5),
            (10, 5),
            (100, 5),
            (1000, 3),
            (10_000, 2),
            (100_000, 1),
            (1_000_000, 1),
        ],
    };
}

/// What one flush took.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// How changes got into the file.
    pub mode: Mode,
    /// Whether a commit had a limit.
    pub limited: bool,
    /// Changes.
    pub items: u32,
    /// Counted from 0.
    pub round: u32,
    /// Commits of the file.
    pub commits: u64,
    /// What it took, all of it together.
    pub taken: Taken,
}

/// The four kinds of flush.
const KINDS: [(Mode, bool); 4] = [
    (Mode::Direct, false),
    (Mode::Direct, true),
    (Mode::Logged, false),
    (Mode::Logged, true),
];

/// The name of a kind.
fn name((mode, limited): (Mode, bool)) -> String {
    format!("{}-{}", mode.name(), if limited { "on" } else { "off" })
}

/// Runs all flushes whose kind's name (`direct-off`, without a limit, ...) contains `filter` in these rounds; `tell` hears
/// of each.
///
/// # Errors
/// Those of the storage.
pub fn run(
    site: &Site,
    effort: Effort,
    filter: &str,
    rounds: Range<u32>,
    tell: impl Fn(u32),
) -> Result<Vec<Sample>, StorageError> {
    let mut samples = Vec::new();
    for round in rounds {
        tell(round);
        for (items, repeats) in effort.flushes {
            for turn in 0..KINDS.len() * *repeats as usize {
                // Each kind is the first one as often as another.
                let (mode, limited) = KINDS[(turn + round as usize) % KINDS.len()];
                if !name((mode, limited)).contains(filter) {
                    continue;
                }
                let limit = if limited { mode.limit() } else { Limit::OFF };
                let (taken, commits) = flush::run(site, mode, limit, *items)?;
                samples.push(Sample {
                    mode,
                    limited,
                    items: *items,
                    round,
                    commits,
                    taken,
                });
            }
        }
    }
    Ok(samples)
}
