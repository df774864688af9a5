//! The executor on threads that a model checker schedules step by step, which finds orders that a machine shows once a
//! month.
//!
//! `RUSTFLAGS="--cfg kedge_model" cargo test -p kedge-executor --test model --release --target-dir target/model`
//!
//! A model that hangs fails as a deadlock, so models wait for the expected result. A failure prints its schedule and
//! its seed; `SHUTTLE_RANDOM_SEED` runs a seed again.
//!
//! There is no timer thread and thus no watchdog, unless a model starts it: the threads of the pool alone ensure that
//! queued tasks run.
#![cfg(kedge_model)]

mod cancel;
mod end;
mod panics;
mod pool;
mod promise;
mod support;
mod timers;
mod wake;
