//! Benchmarks of `kedge-executor` beside rivals: two pools with task semantics that re-create older designs, and bare
//! hand-overs of closures. `benches/executor.rs` runs them; `bench/README.md` describes the measurements.

pub mod alone;
pub mod baton;
pub mod burn;
pub mod contenders;
pub mod floor;
pub mod hist;
pub mod idle;
pub mod lateness;
pub mod long_lived;
pub mod measure;
pub mod one_shot;
pub mod place;
pub mod plan;
pub mod pool;
pub mod report;
pub mod timeouts;
