//! Tests of the public interface of a vBucket.

mod applying;
mod catch_up;
mod collections;
mod commands;
mod direct;
mod disk;
mod effects;
mod expiry;
mod failover;
mod following;
mod histories;
mod life;
mod locks;
mod model;
mod monitor;
mod pair;
mod precompute;
mod replay;
mod residency;
mod residency_model;
mod sync_writes;
mod tools;
mod with_meta;
mod xattrs;
