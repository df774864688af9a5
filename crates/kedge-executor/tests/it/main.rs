//! The executor driven by hand, where all is exact, and with threads, where all must hold whoever is first.

mod support;
mod threads;
