//! The lower bound of a durable write: one thread, pwrite + fdatasync, nothing else.
//!
//! `bare_loop FILE append|overwrite BYTES SECONDS` prints one JSON object with latencies in microseconds. `append`
//! grows the file with each write, as a log without preallocation does, so that each sync journals the file's new size.
//! `overwrite` cycles through 64 MiB that were written and synced before, which is the best that a log with recycled
//! segments can reach. Uses only the standard library: `rustc -O` compiles it.

mod latencies;

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const RING_BYTES: u64 = 64 << 20;

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, path, mode, bytes, seconds] = args.as_slice() else {
        eprintln!("usage: bare_loop FILE append|overwrite BYTES SECONDS");
        std::process::exit(2);
    };
    let bytes: u64 = bytes.parse().expect("BYTES is a number");
    let seconds: f64 = seconds.parse().expect("SECONDS is a number");
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    let ring = match mode.as_str() {
        "append" => None,
        "overwrite" => {
            let zeros = vec![0; 1 << 20];
            for at in (0..RING_BYTES).step_by(zeros.len()) {
                file.write_all_at(&zeros, at)?;
            }
            file.sync_all()?;
            Some(RING_BYTES)
        }
        other => panic!("no mode {other}"),
    };
    let data = vec![b'x'; bytes as usize];
    let mut latencies_ns = Vec::new();
    let mut at = 0;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs_f64(seconds) {
        let start = Instant::now();
        file.write_all_at(&data, at)?;
        file.sync_data()?;
        latencies_ns.push(start.elapsed().as_nanos() as u64);
        at += bytes;
        if ring.is_some_and(|ring| at + bytes > ring) {
            at = 0;
        }
    }
    let elapsed = began.elapsed().as_secs_f64();
    std::fs::remove_file(path)?;
    latencies::print("ops", latencies_ns, elapsed);
    Ok(())
}
