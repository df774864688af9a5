//! The executor driven by hand, where all is exact, and with threads, where all must hold whoever is first.

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
