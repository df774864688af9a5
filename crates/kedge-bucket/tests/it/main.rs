//! A bucket from outside, on simulated and real disks.

mod crash;
mod durable;
mod figures;
mod full_disk;
mod life;
mod tools;
