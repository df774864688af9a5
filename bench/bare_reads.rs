//! The lower bound of a disk read: threads that read 4 KiB each at random offsets, past the page cache, nothing else.
//!
//! `bare_reads DIR THREADS SECONDS` reads from all vBuckets' files of at least 4 KiB below DIR, larger ones more often,
//! and prints one JSON object with latencies in microseconds. Uses only the standard library: `rustc -O` compiles it.

mod latencies;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{env, io, process, thread};

const BLOCK_BYTES: u64 = 4096;
/// `O_DIRECT`, which has another number on some processors.
const DIRECT: i32 = if cfg!(any(target_arch = "aarch64", target_arch = "arm")) { 0o200_000 } else { 0o40_000 };

/// A file, and its number of blocks.
struct Source {
    file: File,
    blocks_to_end: u64,
}

fn sources(dir: &Path, found: &mut Vec<Source>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        if meta.is_dir() {
            sources(&entry.path(), found)?;
        } else if entry.file_name().to_string_lossy().contains(".couch.") && meta.len() >= BLOCK_BYTES {
            let file = OpenOptions::new().read(true).custom_flags(DIRECT).open(entry.path())?;
            let before = found.last().map_or(0, |last| last.blocks_to_end);
            found.push(Source { file, blocks_to_end: before + meta.len() / BLOCK_BYTES });
        }
    }
    Ok(())
}

/// Reads on one thread and returns its latencies, in nanoseconds.
fn read_on(sources: &[Source], seed: u64, seconds: f64) -> io::Result<Vec<u64>> {
    // Aligned to a block, as direct reads require.
    let mut room = vec![0_u8; 2 * BLOCK_BYTES as usize];
    let shift = room.as_ptr().align_offset(BLOCK_BYTES as usize);
    let buffer = &mut room[shift..shift + BLOCK_BYTES as usize];
    let blocks = sources.last().map_or(0, |last| last.blocks_to_end);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut latencies_ns = Vec::new();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs_f64(seconds) {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let block = (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % blocks;
        let at = sources.partition_point(|source| source.blocks_to_end <= block);
        let first = if at == 0 { 0 } else { sources[at - 1].blocks_to_end };
        let start = Instant::now();
        sources[at].file.read_exact_at(buffer, (block - first) * BLOCK_BYTES)?;
        latencies_ns.push(start.elapsed().as_nanos() as u64);
    }
    Ok(latencies_ns)
}

fn main() -> io::Result<()> {
    let args: Vec<String> = env::args().collect();
    let [_, dir, threads, seconds] = args.as_slice() else {
        eprintln!("usage: bare_reads DIR THREADS SECONDS");
        process::exit(2);
    };
    let threads: u64 = threads.parse().expect("THREADS is a number");
    let seconds: f64 = seconds.parse().expect("SECONDS is a number");
    let mut found = Vec::new();
    sources(Path::new(dir), &mut found)?;
    if found.is_empty() {
        return Err(io::Error::other(format!("there is nothing to read in {dir}")));
    }
    let began = Instant::now();
    let of_readers = thread::scope(|scope| {
        let sources = &found;
        let readers: Vec<_> = (0..threads).map(|seed| scope.spawn(move || read_on(sources, seed + 1, seconds))).collect();
        readers.into_iter().map(|reader| reader.join().expect("a reader does not panic")).collect::<io::Result<Vec<_>>>()
    })?;
    let elapsed = began.elapsed().as_secs_f64();
    latencies::print("reads", of_readers.concat(), elapsed);
    Ok(())
}
