//! Tests of the real process, over its real ports.

mod bucket_settings;
mod check_catalogs;
mod cluster;
mod collections;
mod couchstore;
mod couchstore_check;
mod crash;
mod crash_collections;
mod crash_storage;
mod crash_users;
mod disk;
mod faults;
mod floods;
mod histories;
mod hostile;
mod import;
mod lifecycle;
mod load_faults;
mod missing;
mod permissions;
mod process;
mod random;
mod recovery;
mod replicas;
mod request_memory;
mod tools;
