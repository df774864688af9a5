//! Tests of the executor: driven by hand, with exact results, and with threads, independent of their order.

mod cancel;
mod destructors;
mod info;
mod lines;
mod log;
mod naive;
mod panics;
mod priorities;
mod snooze;
mod submit;
mod support;
mod threads;
mod unregister;
mod wake;
