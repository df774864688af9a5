//! The files of a bucket on disks that crash, fail and fill up, and with concurrent operations.

mod catalog;
mod collections;
mod crash;
mod encryption;
mod faults;
mod leaks;
mod life;
mod model;
mod support;
mod threads;
mod upkeep;
mod view;
