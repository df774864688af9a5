//! Samples as a table of medians for people, and as JSON for `bench/storage.py`.

use std::fmt::Write as _;

use kedge_bench_common::figures::{median, micros};
use serde_json::{Value, json};

use crate::flush::{KEY_BYTES, VALUE_BYTES};
use crate::plan::{Effort, Sample};

/// A column of figures.
type Figure = fn(&Sample) -> f64;

const FIGURES: [(&str, Figure); 5] = [
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

/// Medians of all samples.
#[must_use]
pub fn table(samples: &[Sample]) -> String {
    let mut text = format!("{:36}", "");
    for (name, _) in FIGURES {
        let _ = write!(text, "{name:>18}");
    }
    text.push('\n');
    let mut cells: Vec<_> = samples.iter().map(cell).collect();
    cells.sort_unstable();
    cells.dedup();
    for name in cells {
        let (mode, limited, items) = name;
        let limit = if limited { "limited" } else { "no limit" };
        let _ = write!(
            text,
            "{:36}",
            format!("FlushVBucket/{items} {mode}, {limit}")
        );
        let of_cell: Vec<_> = samples
            .iter()
            .filter(|sample| cell(sample) == name)
            .collect();
        for (_, figure) in FIGURES {
            let figure = median(of_cell.iter().map(|sample| figure(sample)));
            let _ = write!(text, "{figure:>18.2}");
        }
        text.push('\n');
    }
    text
}

fn cell(sample: &Sample) -> (&'static str, bool, u32) {
    (sample.mode.name(), sample.limited, sample.items)
}

/// Everything, for a program.
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
