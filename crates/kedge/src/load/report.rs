//! The report at the end of a run: a table for people, one JSON object for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::options::LoadPlan;
use super::tally::LoadTally;

/// Latencies of one kind of request, in microseconds.
#[derive(Debug, Serialize)]
pub(super) struct Latency {
    count: u64,
    mean_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
}

/// Converts nanoseconds to microseconds with one decimal digit.
fn micros(ns: f64) -> f64 {
    (ns / 100.0).round() / 10.0
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| micros(histogram.value_at_quantile(quantile) as f64);
        Self {
            count: histogram.len(),
            mean_us: micros(histogram.mean()),
            p50_us: at(0.50),
            p90_us: at(0.90),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: micros(histogram.max() as f64),
        }
    }
}

/// The whole report. The latencies of all requests are top-level fields beside the counts.
#[derive(Debug, Serialize)]
pub(super) struct RunReport {
    ops: u64,
    errors: u64,
    ops_per_s: f64,
    mean_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
    seconds: f64,
    get: Latency,
    set: Latency,
    misses: u64,
    errors_by_kind: BTreeMap<String, u64>,
    connections_lost: u64,
    connections_regained: u64,
    bytes_sent: u64,
    bytes_received: u64,
    populated: u64,
    populate_seconds: f64,
    populate_errors: BTreeMap<String, u64>,
    protocol: &'static str,
    connections: usize,
    in_flight_per_connection: usize,
    rate_limit: Option<f64>,
    zipfian: Option<f64>,
}

impl RunReport {
    pub(super) fn new(plan: &LoadPlan, populate: Option<&LoadTally>, run: &LoadTally) -> Self {
        let all = Latency::of(&run.latencies());
        let seconds = run.elapsed_ns as f64 / 1e9;
        let ops_per_s = if seconds > 0.0 {
            run.ops() as f64 / seconds
        } else {
            0.0
        };
        Self {
            ops: run.ops(),
            errors: run.error_count(),
            ops_per_s: (ops_per_s * 10.0).round() / 10.0,
            mean_us: all.mean_us,
            p50_us: all.p50_us,
            p90_us: all.p90_us,
            p99_us: all.p99_us,
            p999_us: all.p999_us,
            max_us: all.max_us,
            seconds: (seconds * 1e6).round() / 1e6,
            get: Latency::of(&run.gets),
            set: Latency::of(&run.sets),
            misses: run.misses,
            errors_by_kind: run.errors.clone(),
            connections_lost: run.lost,
            connections_regained: run.reconnected,
            bytes_sent: run.bytes_sent,
            bytes_received: run.bytes_received,
            populated: populate.map_or(0, LoadTally::ops),
            populate_seconds: populate.map_or(0.0, |it| (it.elapsed_ns / 1_000_000) as f64 / 1e3),
            populate_errors: populate.map_or_else(BTreeMap::new, |it| it.errors.clone()),
            protocol: plan.protocol.name(),
            connections: plan.connections,
            in_flight_per_connection: plan.window,
            rate_limit: plan.rate,
            zipfian: plan.zipfian,
        }
    }

    /// Returns the report as one JSON object on one line.
    pub(super) fn json(&self) -> String {
        let mut json = serde_json::to_string(self).expect("numbers and text are valid JSON");
        json.push('\n');
        json
    }

    /// Returns the report as a table.
    pub(super) fn table(&self) -> String {
        let mut out = String::new();
        self.write_table(&mut out)
            .expect("writing to memory does not fail");
        out
    }

    fn write_table(&self, out: &mut String) -> std::fmt::Result {
        if self.populated > 0 {
            let seconds = self.populate_seconds;
            writeln!(
                out,
                "stored {} items in {seconds:.1} s",
                grouped(self.populated)
            )?;
        }
        writeln!(
            out,
            "{} operations in {:.1} s over {} connections ({}): {} ops/s, {} errors, {} misses",
            grouped(self.ops),
            self.seconds,
            grouped(self.connections as u64),
            self.protocol,
            grouped(self.ops_per_s as u64),
            grouped(self.errors),
            grouped(self.misses),
        )?;
        writeln!(
            out,
            "{:>14} {:>12} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
            "latency in us", "count", "mean", "p50", "p90", "p99", "p99.9", "max"
        )?;
        for (name, latency) in [("get", &self.get), ("set", &self.set)] {
            if latency.count > 0 {
                writeln!(
                    out,
                    "{name:>14} {:>12} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1}",
                    grouped(latency.count),
                    latency.mean_us,
                    latency.p50_us,
                    latency.p90_us,
                    latency.p99_us,
                    latency.p999_us,
                    latency.max_us,
                )?;
            }
        }
        for (title, errors) in [
            ("errors while storing items", &self.populate_errors),
            ("errors", &self.errors_by_kind),
        ] {
            for (name, count) in errors {
                writeln!(out, "{title}: {} x {name}", grouped(*count))?;
            }
        }
        if self.connections_lost > 0 {
            let (lost, regained) = (self.connections_lost, self.connections_regained);
            writeln!(
                out,
                "connections lost: {lost}, of which {regained} were reopened"
            )?;
        }
        Ok(())
    }

    /// Returns whether every request succeeded.
    pub(super) fn is_clean(&self) -> bool {
        self.errors == 0 && self.populate_errors.is_empty()
    }
}

/// Returns a number with commas between its thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }
}
