//! The flushes, and their order.

use std::ops::Range;

use kedge_bench_common::measure::WorkCost;
use kedge_bench_common::site::Site;
use kedge_storage::StorageError;

use crate::flush::{self, CommitLimit, FlushMode};

/// The extent of the measurements.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// The number of rounds.
    pub rounds: u32,
    /// The numbers of waiting changes, with their repetitions in a round.
    flushes: &'static [(u32, u32)],
}

impl Effort {
    /// The effort for published figures.
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

    /// The effort for a short run.
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

/// The cost of one flush.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// The way of the changes to the file.
    pub mode: FlushMode,
    /// True if a commit had a limit.
    pub limited: bool,
    /// The number of changes.
    pub items: u32,
    /// The round, from 0.
    pub round: u32,
    /// The number of commits of the file.
    pub commits: u64,
    /// The total cost.
    pub taken: WorkCost,
}

/// The four kinds of flush.
const KINDS: [(FlushMode, bool); 4] = [
    (FlushMode::Direct, false),
    (FlushMode::Direct, true),
    (FlushMode::Logged, false),
    (FlushMode::Logged, true),
];

/// Returns the name of a kind.
fn name((mode, limited): (FlushMode, bool)) -> String {
    format!("{}-{}", mode.name(), if limited { "on" } else { "off" })
}

/// Runs all flushes whose kind's name (`direct-off`, without a limit, ...) contains `filter` in these rounds; `tell` is
/// called for each round.
///
/// # Errors
/// The errors of the storage.
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
                // Each kind comes first equally often.
                let (mode, limited) = KINDS[(turn + round as usize) % KINDS.len()];
                if !name((mode, limited)).contains(filter) {
                    continue;
                }
                let limit = if limited {
                    mode.limit()
                } else {
                    CommitLimit::OFF
                };
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
