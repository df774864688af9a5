//! Tests of the public interface of a bucket, on simulated and real disks.

mod apply;
mod branches;
mod by_hand;
mod collections;
mod compaction;
mod compression;
mod counting;
mod crash;
mod damaged;
mod dcp;
mod direct;
mod durable;
mod figures;
mod flush_all;
mod full_disk;
mod histories;
mod hold;
mod io_errors;
mod leaks;
mod life;
#[path = "../../../kedge-executor/tests/it/lines.rs"]
mod lines;
mod modes;
mod open_files;
mod published;
mod quarantine;
mod residency;
mod rollback;
mod scans;
mod tools;
