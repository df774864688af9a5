//! A node's part in its cluster.
//!
//! [`cluster`] follows the cluster map, communicates with the other nodes, and applies the map to this node's vBuckets
//! through the reconciler; failovers and other changes of the map start there. [`replication`] has the connections by
//! which replicas receive the changes of their actives. [`lease`] holds the node's lease, without which the node serves
//! no client.
//!
//! Management reaches this crate through [`kedge_node::coordination::ClusterControl`], statistics through
//! [`kedge_node::coordination::ReplicationLinks`].
//!
//! # Example
//!
//! A standalone server refuses the data directory of a cluster's node:
//!
//! ```
//! use std::path::Path;
//!
//! use kedge_coordinator::cluster::{MAP_FILE, check_alone};
//! use kedge_disk::{Disk, SimDisk};
//!
//! let (disk, data_dir) = (SimDisk::new(1), Path::new("/data"));
//! disk.create_dir_all(data_dir)?;
//! assert!(check_alone(&disk, data_dir).is_ok());
//!
//! disk.create(&data_dir.join(MAP_FILE))?;
//! let error = check_alone(&disk, data_dir).expect_err("it belongs to a cluster");
//! assert!(error.to_string().contains("--coordinator"));
//! # Ok::<(), kedge_disk::DiskError>(())
//! ```

pub mod cluster;
pub mod lease;
pub mod replication;
