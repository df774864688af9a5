//! A bucket from outside, on simulated and real disks.

mod by_hand;
mod compaction;
mod crash;
mod direct;
mod durable;
mod figures;
mod full_disk;
mod histories;
mod hold;
mod life;
mod modes;
mod residency;
mod set_aside;
mod settle;
mod tools;
