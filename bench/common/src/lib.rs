//! The common parts of the benchmarks: counted memory and I/O, processor time, a temporary directory, random numbers,
//! tables of medians, and command-line arguments.

pub mod alloc;
pub mod arguments;
pub mod counted;
pub mod figures;
pub mod measure;
pub mod random;
pub mod site;
pub mod table;
