//! A cluster in one thread, in virtual time, from one seed.
//!
//! Each node is a real [`kedge_bucket::Bucket`] on a simulated disk, whose tasks run when the simulation decides. Nodes
//! are connected by byte streams that delay, break and stall. Their wall clocks are wrong by hours, their disks slow
//! down, and their memory runs short. The map of the cluster is in a model of the coordination store ([`StoreModel`]):
//! nodes change it by transactions and watch it. Its members stop and lag, its answers are lost, nodes do not reach it,
//! its history is compacted, and backups are restored, also ones without the leases of nodes that serve. Nodes hold leases by
//! clocks that drift, and are paused for longer than a lease, until their watchdogs end them. While the store is away, they
//! serve by the promises of all others not to fail them over. An orchestrator fails others over when their leases have
//! lapsed, and some nodes are failed over while they are alive. The first member executes rebalances, drains, graceful
//! failovers and the recovery of nodes.
//! Nodes are added, and are removed by rebalances, meanwhile. Nodes lose their disks, and are failed over before they
//! begin anew. Clients write, with and without durability levels, and read, also by older maps; others bring documents
//! whose CAS is far ahead. The seed determines every next step, so a failing history can be repeated.
//!
//! The checks:
//! * For each key, the SyncWrites and reads at the active are linearizable across all failovers: so no acknowledged
//!   SyncWrite is lost, and no client has seen a prepare, or a value that was rolled back.
//! * When the cluster is idle, replicas equal their actives, with the same CAS.
//! * No two nodes serve a vBucket at a time, and only its active accepts operations.
//! * The map of the store never goes back, and no revision of it is given twice, unless a backup is restored. Then all nodes
//!   with copies follow the newest map, which the store gets back, whatever others have changed meanwhile.
//! * Seqnos and CAS of a branch never decrease, nor does the CAS of acknowledged SyncWrites of a key in any branch.

mod change;
mod check;
mod clients;
mod control;
mod faults;
mod following;
mod map;
mod messages;
mod network;
mod node;
mod operations;
mod plan;
mod promises;
mod service;
mod serving;
mod store;
mod trace;
mod world;

pub use plan::HistoryPlan;
pub use store::StoreModel;
pub use trace::trace;
pub use world::{Summary, World};
