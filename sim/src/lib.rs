//! A cluster in one thread, in virtual time, from one seed.
//!
//! Each node is a real [`kedge_bucket::Bucket`] on a simulated disk, whose tasks run when the simulation says so. Nodes are
//! joined by byte streams that delay, break off and stand still. Their wall clocks go wrong by hours, their disks slow
//! down, and their memory runs short. Clients write, with durability levels and without, and read; others bring documents
//! whose CAS is far ahead; a coordinator fails nodes over. What happens next is drawn from the seed, so a history that went
//! wrong happens again.
//!
//! What is checked:
//! * For each key, the SyncWrites and reads at the active are linearizable, through all failovers: so no acknowledged
//!   SyncWrite is lost, and nobody has seen a prepare, or a value that was taken back.
//! * When all is quiet, replicas have what their actives have, with the same CAS.
//! * Seqnos and CAS of a branch never go back, nor does the CAS of acknowledged SyncWrites of a key in any branch.

mod check;
mod clients;
mod faults;
mod following;
mod map;
mod network;
mod node;
mod plan;
mod serving;
mod trace;
mod world;

pub use plan::Plan;
pub use trace::trace;
pub use world::{Summary, World};
