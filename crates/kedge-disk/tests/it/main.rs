//! What all disks promise alike, and what the simulated one does when things go wrong.

mod all;
mod observed;
mod sim;
