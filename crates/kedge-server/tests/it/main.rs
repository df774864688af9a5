//! The server over sockets.

mod bootstrap;
mod client;
mod commands;
mod compact;
mod config;
mod evicted;
mod hostile;
mod limits;
mod memcached;
mod memory;
mod meta;
mod order;
mod registry;
mod replies;
mod server;
mod stats;
mod text;
mod vbucket;
mod volume;
