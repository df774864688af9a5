//! Simulated clusters, and the model of the store that they use.

#[path = "../../../crates/kedge-coordination/tests/contract/mod.rs"]
mod contract;
mod histories;
mod store;
