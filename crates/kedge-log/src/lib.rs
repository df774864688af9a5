//! The commit log: segments, group commit, recovery.
