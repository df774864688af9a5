//! Tests of the crate from outside.

mod against_serde_json;
mod corner_cases;
