//! The two ends of a DCP connection as state machines.
//!
//! A [`Producer`] sends the changes of vBuckets, a [`Consumer`] receives them. Both get frames and the time, append frames
//! to a buffer, and say what is to be done; neither knows sockets, threads, buckets or clocks. What a producer sends it
//! reads from a [`Source`]; what a consumer receives it gives out as values that a vBucket takes.
//!
//! [`rollback_point`] says whether a vBucket's history is that of a consumer, and where they part.

mod consumer;
mod disconnect;
mod filter;
mod producer;
mod request;
mod rollback;
mod source;

pub use consumer::{Consumer, ConsumerConfig, ConsumerFigures, Event, Step};
pub use disconnect::Disconnect;
pub use filter::Filter;
pub use kedge_protocol::binary::commands::dcp::{EndReason, StreamFlags};
pub use producer::{
    Filled, Producer, ProducerConfig, ProducerFigures, Refusal, StreamFigures, Todo,
};
pub use request::{StreamId, StreamRequest};
pub use rollback::rollback_point;
pub use source::{Source, SourceState, StreamItem, Values};
