//! FlushVBucket: the time and memory for writing N changes of one vBucket to its file. `benches/storage.rs` runs it;
//! `bench/README.md` describes the measurements.

pub mod flush;
pub mod plan;
pub mod report;
