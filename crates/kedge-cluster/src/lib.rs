//! The cluster map: what clients are told about nodes and vBuckets.
