//! Tests of the public interface of a bucket, on simulated and real disks.

mod apply;
mod background_work;
mod branches;
mod collections;
mod compaction;
mod compression;
mod counting;
mod crash;
mod damaged;
mod dcp;
mod direct;
mod durable;
mod encryption;
mod file_copies;
mod flush_all;
mod full_disk;
mod histories;
mod io_errors;
mod leaks;
mod lifecycle;
#[path = "../../../kedge-executor/tests/it/lines.rs"]
mod lines;
mod log_retention;
mod open_files;
mod persistence_modes;
mod published_seqnos;
mod quarantine;
mod residency;
mod rollback;
mod scans;
mod statistics;
mod tools;
