//! The order of the measurements: everything once in a round, with compared measurements next to each other.

use std::hint::black_box;
use std::time::{Duration, Instant};

use kedge_bench_common::alloc::allocated;

use crate::document::document;
use crate::work::{Implementation, all};

/// The extent of the measurements.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// The number of rounds.
    pub rounds: u32,
    /// The time for which each piece of work is repeated in a round.
    pub each: Duration,
}

impl Effort {
    /// The effort for published figures.
    pub const FULL: Self = Self {
        rounds: 15,
        each: Duration::from_millis(100),
    };
    /// The effort for a short run.
    pub const QUICK: Self = Self {
        rounds: 7,
        each: Duration::from_millis(20),
    };
}

/// The cost of a piece of work in a round.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// The operation.
    pub name: &'static str,
    /// The place in the document.
    pub place: &'static str,
    /// The implementation.
    pub who: Implementation,
    /// The round, from 0.
    pub round: u32,
    /// Nanoseconds per execution.
    pub ns: f64,
    /// Allocations per execution.
    pub allocations: f64,
}

/// Runs the measurements with `filter` in their names. Returns the length of the document in bytes, and the samples.
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
            // The clock is read so seldom that it costs nothing.
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
