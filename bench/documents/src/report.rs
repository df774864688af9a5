//! Samples as a table of medians for people, and as JSON for `bench/documents.py`.

use kedge_bench_common::table::{Column, Table};
use serde_json::{Value, json};

use crate::plan::{Effort, Sample};
use crate::work::Implementation;

const COLUMNS: [Column<Sample>; 2] = [
    ("ns", |sample| sample.ns),
    ("allocations", |sample| sample.allocations),
];

fn name_of(who: Implementation) -> &'static str {
    match who {
        Implementation::Kedge => "kedge",
        Implementation::SerdeJson => "serde_json",
    }
}

/// Returns a table of the medians of all samples, per execution.
#[must_use]
pub fn table(samples: &[Sample]) -> String {
    let table = Table {
        corner: "each time",
        name_width: 48,
        width: 14,
        decimals: 1,
        columns: &COLUMNS,
    };
    let cell = |sample: &Sample| (sample.name, sample.place, name_of(sample.who));
    table.medians(samples, cell, |(name, place, who)| {
        format!("{name} {place} ({who})")
    })
}

/// Returns all samples as JSON, for a program.
#[must_use]
pub fn json(effort: &Effort, document_bytes: usize, samples: &[Sample]) -> Value {
    let samples: Vec<_> = samples
        .iter()
        .map(|sample| {
            json!({
                "work": sample.name,
                "place": sample.place,
                "who": name_of(sample.who),
                "round": sample.round,
                "ns": sample.ns,
                "allocations": sample.allocations,
            })
        })
        .collect();
    json!({
        "rounds": effort.rounds,
        "document_bytes": document_bytes,
        "samples": samples,
    })
}
