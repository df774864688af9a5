//! The two ends of a DCP connection as state machines.
//!
//! A [`Producer`] sends the changes of vBuckets, a [`Consumer`] receives them. Both get frames and the time, append
//! frames to a buffer, and return actions for the caller. Neither uses sockets, threads, buckets or clocks. A producer
//! reads the changes from a [`Source`]; a consumer returns received changes as values that a vBucket accepts.
//!
//! [`rollback_point`] compares the history of a vBucket with that of a consumer, and returns the point where they
//! diverge.
//!
//! # Example
//!
//! A consumer comes from a branch of history that ended at seqno 10, and has seqno 12: it has to roll back.
//!
//! ```
//! use kedge_replication::{Filter, StreamFlags, StreamRequest, rollback_point};
//! use kedge_types::{Seqno, VbId, VbUuid};
//! use kedge_vbucket::FailoverTable;
//!
//! let branches = vec![(VbUuid(2), Seqno(10)), (VbUuid(1), Seqno(0))];
//! let table = FailoverTable::from_entries(branches).expect("the newest branch stands first");
//! let mut request = StreamRequest {
//!     vb: VbId(0),
//!     flags: StreamFlags(0),
//!     start: Seqno(12),
//!     end: Seqno(u64::MAX),
//!     uuid: VbUuid(1),
//!     snap_start: Seqno(12),
//!     snap_end: Seqno(12),
//!     purge_seen: None,
//!     manifest_seen: None,
//!     filter: Filter::Everything,
//!     unordered: false,
//!     sync_writes: true,
//!     consumer: None,
//! };
//! let (high, purge) = (Seqno(30), Seqno(0));
//! assert_eq!(rollback_point(&table, high, purge, None, &request), Err(Seqno(10)));
//!
//! request.uuid = VbUuid(2);
//! assert_eq!(rollback_point(&table, high, purge, None, &request), Ok(()));
//! ```

mod consumer;
mod disconnect;
mod filter;
mod producer;
mod request;
mod rollback;
mod source;

pub use consumer::{Consumer, ConsumerConfig, ConsumerEvent, ConsumerFigures, ConsumerStep};
pub use disconnect::Disconnect;
pub use filter::Filter;
pub use kedge_protocol::binary::commands::dcp::{EndReason, StreamFlags};
pub use producer::{
    FillResult, Producer, ProducerAction, ProducerConfig, ProducerFigures, ProducerStreamFigures,
    RequestRejection,
};
pub use request::{StreamId, StreamRequest};
pub use rollback::rollback_point;
pub use source::{Source, SourceState, StreamItem, Values};
