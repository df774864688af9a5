//! What benchmarks of parts of Kedge share: counted memory and I/O, processor time, a directory that goes away again,
//! random numbers, medians and tables of them, what a benchmark is told.

pub mod alloc;
pub mod arguments;
pub mod counted;
pub mod figures;
pub mod measure;
pub mod random;
pub mod site;
pub mod table;
