//! Simulated clusters, and the model of the store that they use.

#[path = "../../../crates/kedge-coordination/tests/contract/mod.rs"]
#[expect(dead_code, reason = "the model has no leases")]
mod contract;
mod histories;
mod store;
