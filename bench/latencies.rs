//! The report of a bare loop: what `bare_loop` and `bare_reads` share.

/// Prints one JSON object: how many of `what` there were, how many a second, and their latencies in microseconds.
///
/// # Panics
/// If there were none.
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
