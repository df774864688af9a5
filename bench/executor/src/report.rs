//! Samples as a table of medians for people, and as JSON for `bench/executor.py`.

use std::fmt::Write as _;

use kedge_bench_common::figures::median;
use kedge_bench_common::table::Column;
use serde_json::{Value, json};

use crate::floor::Distance;
use crate::plan::{Effort, FLOOR, Sample};
use crate::timeouts;

const FIGURES: [Column<Sample>; 3] = [
    ("thousand items/s", |sample| {
        sample.measured.outcome.items_per_s / 1e3
    }),
    ("least / most served front thread", |sample| {
        sample.measured.outcome.fairness
    }),
    ("CPU us per item", |sample| {
        sample.measured.outcome.cpu_us_per_item
    }),
];

/// Returns the medians of all samples, a table per benchmark and figure. Samples are in the order of the plan, and so
/// are rows and columns.
#[must_use]
pub fn tables(samples: &[Sample]) -> String {
    let mut text = String::new();
    for distance in Distance::ALL {
        let of_distance: Vec<_> = samples
            .iter()
            .filter(|sample| sample.distance == distance)
            .collect();
        if of_distance.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\nprocessors {}:", distance.name());
        text.push_str(&tables_at_a_distance(&of_distance, floor(samples)));
    }
    text
}

/// Returns the reference of ratios, if it was measured: the first case that the machine can run.
fn floor(samples: &[Sample]) -> Option<&'static str> {
    let first = samples.iter().find(|sample| sample.bench == FLOOR);
    first.map(|sample| sample.contender)
}

fn tables_at_a_distance(samples: &[&Sample], floor: Option<&str>) -> String {
    let items_per_s = |sample: &Sample| sample.measured.outcome.items_per_s;
    let of_floor = samples
        .iter()
        .filter(|sample| sample.bench == FLOOR && Some(sample.contender) == floor);
    let turns_per_s = median(of_floor.map(|sample| items_per_s(sample)));
    let mut text = String::new();
    for bench in in_order(samples.iter().map(|sample| sample.bench.as_str())) {
        let mut of_bench = samples.to_vec();
        of_bench.retain(|sample| sample.bench == bench);
        for (name, figure) in FIGURES {
            text.push_str(&table(&format!("{bench}: {name}"), &of_bench, figure));
        }
        if !turns_per_s.is_nan() {
            let title = format!("{bench}: times the futex floor");
            let times = |sample: &Sample| items_per_s(sample) / turns_per_s;
            text.push_str(&table(&title, &of_bench, times));
        }
    }
    text
}

/// Returns a table of one figure of one benchmark: contenders as rows, sizes as columns.
fn table(title: &str, samples: &[&Sample], figure: impl Fn(&Sample) -> f64) -> String {
    let sizes = in_order(samples.iter().map(|sample| sample.size));
    let contenders = in_order(samples.iter().map(|sample| sample.contender));
    let mut text = format!("\n{title}\n{:34}", "");
    for size in &sizes {
        let _ = write!(text, "{size:>10}");
    }
    for contender in contenders {
        let _ = write!(text, "\n  {contender:32}");
        for size in &sizes {
            let cell = samples
                .iter()
                .filter(|sample| sample.contender == contender && sample.size == *size);
            let _ = write!(text, "{:>10.2}", median(cell.map(|sample| figure(sample))));
        }
    }
    text.push('\n');
    text
}

/// Returns all samples as JSON, for a program.
#[must_use]
pub fn json(effort: &Effort, samples: &[Sample], complete_at: &[Distance], alone: &Value) -> Value {
    let each: Vec<_> = samples
        .iter()
        .map(|sample| {
            let outcome = &sample.measured.outcome;
            json!({
                "bench": sample.bench,
                "size": sample.size,
                "contender": sample.contender,
                "round": sample.round,
                "distance": sample.distance.name(),
                "items_per_s": rounded(outcome.items_per_s),
                "fairness": rounded(outcome.fairness),
                "cpu_us_per_item": rounded(outcome.cpu_us_per_item),
                "settled_per_s": sample.measured.settled_per_s.map(rounded),
            })
        })
        .collect();
    json!({
        "effort": {
            "rounds": effort.rounds,
            "measured_s": effort.window.measured.as_secs_f64(),
            "timeouts_s": timeouts::shortened(effort.window).measured.as_secs_f64(),
            "idle_s": effort.idle.as_secs_f64(),
        },
        "floor": floor(samples),
        "complete_at": complete_at.iter().map(|distance| distance.name()).collect::<Vec<_>>(),
        "samples": each,
        "alone": alone,
    })
}

/// Rounds to enough digits for any figure here, and no more.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

fn in_order<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}
