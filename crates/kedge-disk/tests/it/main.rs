//! The guarantees that all disks share, and the faults of the simulated one.

mod all;
mod observed;
mod sim;
