//! The report of a bare loop, which `bare_loop` and `bare_reads` share.

/// Prints one JSON object: the number of `what`, the rate per second, and their latencies in microseconds.
///
/// # Panics
/// If there are no latencies.
pub(crate) fn print(what: &str, mut latencies_ns: Vec<u64>, elapsed_s: f64) {
    latencies_ns.sort_unstable();
    let count = latencies_ns.len();
    let at = |quantile: f64| latencies_ns[((count - 1) as f64 * quantile) as usize] as f64 / 1e3;
    println!(
        "{{\"{what}\":{count},\"{what}_per_s\":{:.1},\"p50_us\":{:.1},\"p99_us\":{:.1},\"max_us\":{:.1}}}",
        count as f64 / elapsed_s,
        at(0.5),
        at(0.99),
        at(1.0),
    );
}
