//! Couchstore files: those of Couchbase's own library with the output of its tools, and our own on a simulated disk
//! that crashes, fails and fills up.

mod audit;
mod compact;
mod compact_faults;
mod compact_golden;
mod compact_growing;
mod compact_hooks;
mod compact_model;
mod compact_purge;
mod crash;
mod encrypted;
mod faults;
mod golden;
mod history;
mod hostile;
mod located;
mod model;
mod nodes;
mod salvage;
mod support;
mod torn;
mod writer;

mod kv;
mod python;
