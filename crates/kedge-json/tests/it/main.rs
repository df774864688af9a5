//! Tests of the crate from outside.

mod against_a_tree;
mod against_serde_json;
mod corner_cases;
mod edits;
mod edits_of_arrays;
mod lookups;
mod naive;
