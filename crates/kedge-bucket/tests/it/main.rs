//! A bucket from outside, on simulated and real disks.

mod by_hand;
mod crash;
mod durable;
mod figures;
mod full_disk;
mod life;
mod tools;
