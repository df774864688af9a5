//! Sub-document operations from outside.

mod all_or_nothing;
mod lookups;
mod mutations;
mod tools;
mod xattrs;
