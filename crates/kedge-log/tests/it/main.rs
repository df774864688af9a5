//! The commit log on a simulated disk that crashes, fails and fills up.

mod crash;
mod damage;
mod faults;
mod hostile;
mod round_trip;
mod segments;
mod support;
