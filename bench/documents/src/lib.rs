//! Benchmarks of sub-document operations: the cost of reading or changing a path of a JSON document of 10 KB, compared
//! with parsing all of it, changing the tree and writing it. `benches/documents.rs` runs them; `bench/README.md`
//! describes the measurements.

pub mod document;
pub mod plan;
pub mod report;
pub mod work;
