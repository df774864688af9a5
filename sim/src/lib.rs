//! A cluster in one thread, in virtual time, from one seed.
//!
//! Each node is a real [`kedge_bucket::Bucket`] on a simulated disk, whose tasks run when the simulation decides. Nodes
//! are connected by byte streams that delay, break and stall. Their wall clocks are wrong by hours, their disks slow
//! down, and their memory runs short. Clients write, with and without durability levels, and read; others bring
//! documents whose CAS is far ahead; a coordinator fails nodes over. The seed determines every next step, so a failing
//! history can be repeated.
//!
//! The checks:
//! * For each key, the SyncWrites and reads at the active are linearizable across all failovers: so no acknowledged
//!   SyncWrite is lost, and no client has seen a prepare, or a value that was rolled back.
//! * When the cluster is idle, replicas equal their actives, with the same CAS.
//! * Seqnos and CAS of a branch never decrease, nor does the CAS of acknowledged SyncWrites of a key in any branch.

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

pub use plan::HistoryPlan;
pub use trace::trace;
pub use world::{Summary, World};
