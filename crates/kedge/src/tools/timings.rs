//! `kedge timings`: histograms with bars, in the form that operators of this kind of server know.

use std::fmt::Write as _;

use clap::Args;
use serde::Deserialize;
use serde_json::Value;

use super::{ServerArgs, ToolError};
use crate::client::{ClientError, ManagementClient, encode};
use crate::output;

/// Widest bar, in characters.
const BAR_WIDTH: u64 = 44;
/// Histograms that exist for each kind of task, `queue_time.log_commit` for example.
const PER_KIND: [&str; 2] = ["queue_time", "run_time"];
/// The largest number of rows of one histogram; neighbours are merged until there are no more.
const ROWS_MAX: usize = 32;

/// Show the duration of commands, syncs and tasks
#[derive(Args, Clone, Debug)]
pub(crate) struct TimingsArgs {
    /// Histograms, such as get, set, log_sync, sync_write_commit_persist_to_majority, queue_time:log_commit or
    /// run_time (of all kinds of tasks); without one, all that have values
    names: Vec<String>,
    /// Print JSON instead of bars
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: ServerArgs,
}

/// A histogram from the management: lowest value, highest value, count.
#[derive(Debug, Deserialize)]
struct TimingHistogram {
    count: u64,
    buckets: Vec<(u64, u64, u64)>,
}

pub(crate) fn run(args: &TimingsArgs) -> Result<(), ToolError> {
    let client = args.access.management()?;
    let bucket = args.access.bucket()?;
    let all = format!("/kedge/timings/{}", encode(&bucket));
    let mut found = Vec::new();
    if args.names.is_empty() {
        found = with_values(&client, &all)?;
    }
    for name in &args.names {
        if PER_KIND.contains(&name.as_str()) {
            let of_kinds = with_values(&client, &all)?.into_iter();
            found.extend(of_kinds.filter(|(known, _)| known.split('.').next() == Some(name)));
            continue;
        }
        let name = name.replace(':', ".");
        let document = match client.json(&format!("{all}/{}", encode(&name))) {
            Err(ClientError::Http { code: 404, .. }) => {
                return Err(ToolError::Usage(format!(
                    "there is no histogram \"{name}\" of bucket \"{bucket}\""
                )));
            }
            other => other?,
        };
        found.push((name, document));
    }
    let mut text = String::new();
    for (name, document) in found {
        if args.json {
            let _ = writeln!(
                text,
                "{}",
                serde_json::json!({ "name": name, "histogram": document })
            );
            continue;
        }
        let histogram: TimingHistogram = serde_json::from_value(document)
            .map_err(|error| ToolError::Usage(format!("histogram \"{name}\": {error}")))?;
        text.push_str(&render(&name, &histogram));
    }
    if text.is_empty() {
        text = format!("no timings yet in bucket \"{bucket}\"\n");
    }
    Ok(output::print(&text)?)
}

/// Returns all histograms that have values.
fn with_values(client: &ManagementClient, path: &str) -> Result<Vec<(String, Value)>, ToolError> {
    let mut document = client.json(path)?;
    let timings = document.get_mut("timings").and_then(Value::as_object_mut);
    Ok(timings.map(std::mem::take).into_iter().flatten().collect())
}

/// Formats rows `[low - high]us (cumulative %) count | ####`, and the total.
fn render(name: &str, histogram: &TimingHistogram) -> String {
    let mut out = String::new();
    let total = histogram.count;
    let _ = writeln!(out, "The following data is collected for \"{name}\"");
    let rows = coalesce(&histogram.buckets);
    let most = rows.iter().map(|row| row.2).max().unwrap_or(0);
    let width = rows
        .iter()
        .map(|row| row.1.to_string().len())
        .max()
        .unwrap_or(1);
    let count_width = most.to_string().len();
    // Histograms of counts have no unit.
    let is_count = name.ends_with("_items") || name.ends_with("_size");
    let unit = if is_count { "" } else { "us" };
    let mut so_far = 0_u64;
    for (low, high, count) in rows {
        so_far += count;
        let percent = so_far as f64 * 100.0 / total.max(1) as f64;
        let bar = "#".repeat((count * BAR_WIDTH).div_ceil(most.max(1)) as usize);
        let line = format!(
            "[{low:>width$} - {high:>width$}]{unit} ({percent:>8.4}%) {count:>count_width$} | {bar}"
        );
        let _ = writeln!(out, "{}", line.trim_end());
    }
    let _ = writeln!(out, "Total: {total} operations");
    out
}

/// Merges neighbours: rows are narrow for small values, and never too many. A row spans at least a 16th of its lowest
/// value, then an 8th, a 4th and so on.
fn coalesce(buckets: &[(u64, u64, u64)]) -> Vec<(u64, u64, u64)> {
    for shift in (0..=4).rev() {
        let mut rows: Vec<(u64, u64, u64)> = Vec::new();
        for &(low, high, count) in buckets {
            match rows.last_mut() {
                Some(row) if high <= row.0 + (row.0 >> shift) => {
                    row.1 = high;
                    row.2 += count;
                }
                _ => rows.push((low, high, count)),
            }
        }
        if rows.len() <= ROWS_MAX || shift == 0 {
            return rows;
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_drawn() {
        let histogram = TimingHistogram {
            count: 10,
            buckets: vec![(1, 1, 1), (2, 2, 8), (100, 103, 1)],
        };
        assert_eq!(
            render("get", &histogram),
            "The following data is collected for \"get\"\n\
             [  1 -   1]us ( 10.0000%) 1 | ######\n\
             [  2 -   2]us ( 90.0000%) 8 | ############################################\n\
             [100 - 103]us (100.0000%) 1 | ######\n\
             Total: 10 operations\n"
        );
        let empty = render(
            "set",
            &TimingHistogram {
                count: 0,
                buckets: Vec::new(),
            },
        );
        assert!(empty.ends_with("Total: 0 operations\n"), "{empty}");
    }

    #[test]
    fn merged_histogram_rows_lose_no_counts() {
        let buckets: Vec<(u64, u64, u64)> = (0..20)
            .flat_map(|power| {
                (0..32).map(move |step| {
                    let low = (32 + step) << power;
                    (low, low + (1 << power) - 1, step + power)
                })
            })
            .collect();
        let rows = coalesce(&buckets);
        assert!(rows.len() <= ROWS_MAX, "{} rows", rows.len());
        let sum = |rows: &[(u64, u64, u64)]| rows.iter().map(|row| row.2).sum::<u64>();
        assert_eq!(sum(&rows), sum(&buckets));
        assert!(rows.windows(2).all(|pair| pair[0].1 < pair[1].0));
    }
}
