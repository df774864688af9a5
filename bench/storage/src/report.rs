//! Samples as a table of medians for people, and as JSON for `bench/storage.py`.

use kedge_bench_common::figures::micros;
use kedge_bench_common::table::{Column, Table};
use serde_json::{Value, json};

use crate::flush::{KEY_BYTES, VALUE_BYTES};
use crate::plan::{Effort, Sample};

const COLUMNS: [Column<Sample>; 5] = [
    ("items/s", |sample| {
        f64::from(sample.items) / sample.taken.wall.as_secs_f64()
    }),
    ("CPU us/item", |sample| {
        micros(sample.taken.cpu) / f64::from(sample.items)
    }),
    ("PeakFlushBytes", |sample| sample.taken.peak_bytes as f64),
    ("PeakBytesPerItem", |sample| {
        sample.taken.peak_bytes as f64 / f64::from(sample.items)
    }),
    ("commits", |sample| sample.commits as f64),
];

/// Returns a table of the medians of all samples.
#[must_use]
pub fn table(samples: &[Sample]) -> String {
    let table = Table {
        corner: "",
        name_width: 36,
        width: 18,
        decimals: 2,
        columns: &COLUMNS,
    };
    let cell = |sample: &Sample| (sample.mode.name(), sample.limited, sample.items);
    table.medians(samples, cell, |(mode, limited, items)| {
        let limit = if *limited { "limited" } else { "no limit" };
        format!("FlushVBucket/{items} {mode}, {limit}")
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
                "mode": sample.mode.name(),
                "limited": sample.limited,
                "items": sample.items,
                "round": sample.round,
                "commits": sample.commits,
                "cpu_us": micros(taken.cpu),
                "wall_us": micros(taken.wall),
                "peak_bytes": taken.peak_bytes,
                "allocations": taken.allocations,
                "written_bytes": taken.io.written_bytes,
                "syncs": taken.io.syncs,
            })
        })
        .collect();
    json!({
        "rounds": effort.rounds,
        "key_bytes": KEY_BYTES,
        "value_bytes": VALUE_BYTES,
        "samples": samples,
    })
}
