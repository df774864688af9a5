//! The server over sockets.

mod bootstrap;
mod client;
mod collections;
mod commands;
mod compact;
mod config;
mod dcp;
mod evicted;
mod hostile;
mod limits;
mod memcached;
mod memory;
mod meta;
mod order;
mod range_scan;
mod registry;
mod replication;
mod replies;
mod server;
mod settings;
mod stats;
mod subdoc;
mod text;
mod vbucket;
mod volume;
mod with_meta;
