//! The Disk trait, its posix implementation, and one that injects faults and simulates crashes.
