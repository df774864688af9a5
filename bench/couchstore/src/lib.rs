//! Benchmarks of `kedge-couchstore`: processor time, memory and I/O of saving, reading and compacting documents of 512
//! random bytes. `benches/couchstore.rs` runs them; `bench/README.md` describes the measurements.

pub mod documents;
pub mod plan;
pub mod report;
pub mod work;
