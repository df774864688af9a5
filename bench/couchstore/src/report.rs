//! Samples as a table of medians for people, and as JSON for `bench/couchstore.py`.

use kedge_bench_common::figures::micros;
use kedge_bench_common::table::{Column, Table};
use serde_json::{Value, json};

use crate::documents::DOCUMENT_BYTES;
use crate::plan::{Effort, Sample};

const COLUMNS: [Column<Sample>; 9] = [
    ("CPU us", |sample| {
        sample.taken.cpu.as_secs_f64() * 1e6 / sample.items as f64
    }),
    ("wall us", |sample| {
        sample.taken.wall.as_secs_f64() * 1e6 / sample.items as f64
    }),
    ("peak KiB", |sample| sample.taken.peak_bytes as f64 / 1024.0),
    ("peak B/item", |sample| {
        sample.taken.peak_bytes as f64 / sample.items as f64
    }),
    ("allocs", |sample| {
        sample.taken.allocations as f64 / sample.items as f64
    }),
    ("amplif.", |sample| {
        sample.taken.io.written_bytes as f64 / (sample.items as usize * DOCUMENT_BYTES) as f64
    }),
    ("reads", |sample| {
        sample.taken.io.reads as f64 / sample.items as f64
    }),
    ("read B", |sample| {
        sample.taken.io.read_bytes as f64 / sample.items as f64
    }),
    ("writes", |sample| {
        sample.taken.io.writes as f64 / sample.items as f64
    }),
];

/// Returns a table of the medians of all samples, per item.
#[must_use]
pub fn table(samples: &[Sample]) -> String {
    let table = Table {
        corner: "per item",
        name_width: 32,
        width: 12,
        decimals: 3,
        columns: &COLUMNS,
    };
    let cell = |sample: &Sample| (sample.site, sample.work, sample.size);
    table.medians(samples, cell, |(site, work, size)| {
        format!("{site} {work} {size}")
    })
}

/// Returns all samples as JSON, for a program.
#[must_use]
pub fn json(effort: &Effort, samples: &[Sample]) -> Value {
    let samples: Vec<_> = samples
        .iter()
        .map(|sample| {
            let taken = &sample.taken;
            json!({
                "work": sample.work,
                "site": sample.site,
                "size": sample.size,
                "round": sample.round,
                "items": sample.items,
                "cpu_us": micros(taken.cpu),
                "wall_us": micros(taken.wall),
                "peak_bytes": taken.peak_bytes,
                "allocations": taken.allocations,
                "reads": taken.io.reads,
                "read_bytes": taken.io.read_bytes,
                "writes": taken.io.writes,
                "small_writes": taken.io.small_writes,
                "written_bytes": taken.io.written_bytes,
                "syncs": taken.io.syncs,
            })
        })
        .collect();
    json!({
        "rounds": effort.rounds,
        "document_bytes": DOCUMENT_BYTES,
        "samples": samples,
    })
}
