//! Benchmarks of `kedge-couchstore`: what saving, reading and compacting documents of 512 random bytes costs in
//! processor time, memory and I/O. `benches/couchstore.rs` runs them; `bench/README.md` says what is measured and how.

pub mod documents;
pub mod plan;
pub mod report;
pub mod work;
