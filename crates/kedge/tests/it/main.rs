//! Tests of the real process, over its real ports.

mod couchstore;
mod couchstore_check;
mod crash;
mod faults;
mod hostile;
mod import;
mod lifecycle;
mod load_faults;
mod process;
mod random;
mod tools;
