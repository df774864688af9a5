//! Tasks that visit all hash tables, a shard at a time: the expiry sweep, the purge of dropped collections' documents,
//! the compressor, and the defragmenter.

mod component;
mod compressor;
mod defragmenter;
mod dropped;
mod expiry;

pub(crate) use component::Sweeper;
pub(crate) use compressor::ItemCompressor;
pub(crate) use defragmenter::{Defragmenter, interval};
pub(crate) use dropped::DroppedSweep;
pub(crate) use expiry::ExpirySweep;
