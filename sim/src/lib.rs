//! A cluster in one thread, in virtual time, from one seed.
//!
//! Each node is a real [`kedge_bucket::Bucket`] on a simulated disk, whose tasks run when the simulation says so. Nodes are
//! joined by byte streams that delay, break off and stand still. Clients write, with durability levels and without, and
//! read; a coordinator fails nodes over. What happens next is drawn from the seed, so a history that went wrong happens
//! again.
//!
//! What is checked:
//! * For each key, the SyncWrites and reads at the active are linearizable, through all failovers: so no acknowledged
//!   SyncWrite is lost, and nobody has seen a prepare, or a value that was taken back.
//! * When all is quiet, replicas have what their actives have.
//! * Seqnos and CAS of a branch never go back.

mod check;
mod clients;
mod faults;
mod following;
mod map;
mod network;
mod node;
mod plan;
mod serving;
mod world;

pub use plan::Plan;
pub use world::{Summary, World};
