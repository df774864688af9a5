//! Benchmarks of sub-document operations: what it takes to read or change a path of a JSON document of 10 KB, beside
//! parsing all of it, changing the tree and writing it. `benches/documents.rs` runs them; `bench/README.md` says what is
//! measured and how.

pub mod document;
pub mod plan;
pub mod report;
pub mod work;
