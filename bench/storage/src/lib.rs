//! FlushVBucket: what it takes to bring N changes of one vBucket into its file, in time and in memory.
//! `benches/storage.rs` runs it; `bench/README.md` says what is measured and how.

pub mod flush;
pub mod plan;
pub mod report;
