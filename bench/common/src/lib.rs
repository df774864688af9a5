//! What benchmarks of parts of Kedge share: counted memory and I/O, processor time, a directory that goes away again.

pub mod alloc;
pub mod counted;
pub mod figures;
pub mod measure;
pub mod random;
pub mod site;
