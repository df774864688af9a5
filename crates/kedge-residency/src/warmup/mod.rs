//! Warmup: documents are read from the files into memory, before or while commands run.
//!
//! Recovery reads all that is needed before a command can run. Warmup reads the documents, as far as they
//! fit below the low watermark. If all of them will fit, one read of each file brings them. If not, and keys stay in
//! memory, the keys of all files come first; then the nodes of the files' trees that tell the places of documents, as far
//! as there is memory for them; then the documents that were used most, as the access log says; then the others in the
//! order of the files. A document that is not in memory yet is fetched when a command asks for it.
//!
//! Invariants:
//! * A vBucket learns once that its file was read to the end, from the job that did so. Until then any miss may be on
//!   disk, and no key is evicted; after a failure it stays so.
//! * A job is done by one worker, a part at a time; nothing is locked while a file is read.

mod component;
mod installed;
mod jobs;
mod load;
mod progress;
mod running;

pub use component::Warmup;
