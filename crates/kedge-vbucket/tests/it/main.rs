//! A vBucket from outside.

mod commands;
mod expiry;
mod locks;
mod model;
mod replay;
mod sync_writes;
mod tools;
