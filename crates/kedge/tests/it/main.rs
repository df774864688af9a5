//! Tests of the real process, over its real ports.

mod crash;
mod hostile;
mod lifecycle;
mod process;
mod random;
mod tools;
