//! A node's part in its cluster.
//!
//! [`cluster`] follows the cluster map, asks the other nodes how they are, and has the reconciler make the vBuckets of this
//! node what the map says; failovers and other changes of the map begin there. [`replication`] has the connections by which
//! replicas receive the changes of their actives.
//!
//! Management reaches this crate through [`kedge_node::coordination::ClusterControl`], statistics through
//! [`kedge_node::coordination::ReplicationLinks`].

pub mod cluster;
pub mod replication;
