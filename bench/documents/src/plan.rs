//! The order in which it runs: everything once in a round, what is compared one after the other.

use std::hint::black_box;
use std::time::{Duration, Instant};

use kedge_bench_common::alloc::allocated;

use crate::document::document;
use crate::work::{Who, all};

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// How often everything runs.
    pub rounds: u32,
    /// How long each piece of work is repeated in a round.
    pub each: Duration,
}

impl Effort {
    /// What figures are published from.
    pub const FULL: Self = Self {
        rounds: 15,
        each: Duration::from_millis(100),
    };
    /// A short look.
    pub const QUICK: Self = Self {
        rounds: 7,
        each: Duration::from_millis(20),
    };
}

/// What a piece of work took in a round.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// What was done.
    pub name: &'static str,
    /// Where.
    pub place: &'static str,
    /// By whom.
    pub who: Who,
    /// In which round, from 0.
    pub round: u32,
    /// Nanoseconds each time.
    pub ns: f64,
    /// Allocations each time.
    pub allocations: f64,
}

/// Runs what has `filter` in its name. The length of the document in bytes, and the samples.
#[must_use]
pub fn run(effort: Effort, filter: &str) -> (usize, Vec<Sample>) {
    let text = document();
    let mut all = all();
    all.retain(|work| work.name.contains(filter));
    let mut samples = Vec::new();
    for round in 0..effort.rounds {
        for work in &all {
            let (mut times, mut batch) = (0_u64, 1_u64);
            let (before, start) = (allocated().count, Instant::now());
            // The clock is looked at seldom enough to cost nothing.
            let took = loop {
                for _ in 0..batch {
                    black_box((work.run)(black_box(&text)));
                }
                times += batch;
                let took = start.elapsed();
                if took >= effort.each {
                    break took;
                }
                batch = times.min(1000);
            };
            samples.push(Sample {
                name: work.name,
                place: work.place,
                who: work.who,
                round,
                ns: took.as_nanos() as f64 / times as f64,
                allocations: (allocated().count - before) as f64 / times as f64,
            });
        }
    }
    (text.len(), samples)
}
