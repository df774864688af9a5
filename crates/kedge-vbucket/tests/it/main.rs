//! A vBucket from outside.

mod commands;
mod direct;
mod disk;
mod expiry;
mod histories;
mod life;
mod locks;
mod model;
mod replay;
mod residency;
mod settling;
mod sync_writes;
mod tools;
