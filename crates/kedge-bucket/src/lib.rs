//! A bucket: vBuckets, the commit log and the memory quota put together.
