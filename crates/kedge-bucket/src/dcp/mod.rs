//! DCP streams of vBuckets: outbound, to replicas and other clients, and inbound, from the active of a replica.
//!
//! An outbound stream starts after the last seqno that its receiver has. If the checkpoints lack changes since then, a
//! backfill reads them from the vBucket's file as a snapshot (`backfill`). The stream then follows the checkpoints with a
//! cursor (`stream`). A cursor that keeps too much memory is dropped (`memory`), and its stream returns to a backfill.
//!
//! Invariants:
//! * Between two seqnos that a stream has sent, only versions are missing that newer versions in the same snapshot replaced.
//! * A stream belongs to one state, one branch and one history of its vBucket. It ends when any of these changes.
//! * The reader of an idle stream is notified once when there are new items. No lock is held during the notification.

mod backfill;
mod component;
mod connection;
mod copy_pace;
mod counters;
mod figures;
mod memory;
mod news;
mod order;
mod receive;
mod receiver_state;
mod signals;
mod stream;
mod streams;

pub use backfill::COPY_CHANGE_COST_BYTES;
pub use component::Dcp;
pub use connection::{OpenedStream, StreamConnection, StreamRefused};
pub use counters::StreamState;
pub use figures::StreamFigures;
pub use receive::{ApplyError, ReceiveOutcome};
pub use receiver_state::ReplicaSink;
pub use signals::StreamNotify;
pub(crate) use signals::StreamSignals;
pub use stream::VbStream;
pub use streams::ConnectionStreams;
