//! The executor on threads whose every step a model checker chooses: the orders that a machine shows once in a month.
//!
//! `RUSTFLAGS="--cfg kedge_model" cargo test -p kedge-executor --test model --release --target-dir target/model`
//!
//! A model that hangs fails as a deadlock, so what must happen in the end is waited for. A failure prints its schedule
//! and its seed; `SHUTTLE_RANDOM_SEED` runs a seed again.
//!
//! There is no timer's thread, and so no watch, except where a model begins it: what is queued runs because the threads
//! of the pool see to it.
#![cfg(kedge_model)]

mod cancel;
mod end;
mod panics;
mod pool;
mod promise;
mod support;
mod timers;
mod wake;
