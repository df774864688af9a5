//! Couchstore files: append-only, copy-on-write files with two B+trees over the documents of a vBucket, by id and by
//! seqno, and a third of local documents. This crate opens, reads, writes and rolls them back as Couchbase's own
//! library does, and knows no log and no buckets.

pub mod kv;
