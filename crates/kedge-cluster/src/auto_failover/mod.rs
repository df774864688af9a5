//! Automatic failover: pure state machines. Observations with their time go in, decisions come out; nothing here waits,
//! reads a clock or sends anything.
//!
//! * [`AutoFailoverSettings`] is the document of the settings, and of the number of failovers since the last reset.
//! * [`DiskJudge`] turns samples of a node's own disk into its [`NodeHealth`], which the node puts into its lease record.
//! * [`AutoFailover`] decides which nodes are failed over, and names the reason where they are not.
//!
//! Invariants of the decisions:
//! * Only the orchestrator acts, and only while it reaches the coordination store and the settings enable it.
//! * All nodes of one decision are in one server group, and at least one member of the cluster is not among them.
//! * A decision never exceeds the maximum count.
//! * While a member is late with its lease and not yet down, nothing is decided: it may be lost, too.
//!
//! There is no rule about majorities of nodes. The coordination store arbitrates: of the parts of a divided cluster, only
//! one reaches the store's majority, and the leases of all other nodes end. So two data nodes are enough.

mod disk;
mod health;
mod machine;
mod observation;
mod outage;
mod refusal;
mod settings;

pub use disk::{DiskJudge, DiskSample};
pub use health::{DiskHealth, DiskTrouble, NodeHealth};
pub use machine::{AutoFailover, Decision, DownNode};
pub use observation::{ClusterObservation, LeaseSeen, MemberObservation};
pub use outage::DownCause;
pub use refusal::Refusal;
pub use settings::{
    AUTO_FAILOVER_TIMEOUT_SECS_MAX, AutoFailoverChange, AutoFailoverEdit, AutoFailoverSettings,
    DiskOption, DiskOptionChange, FieldError,
};
