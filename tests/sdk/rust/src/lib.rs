//! The end-to-end suite of the official Rust SDK against Kedge; everything is in `tests/it`.
