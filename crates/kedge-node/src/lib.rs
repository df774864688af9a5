#![doc = include_str!("../README.md")]

pub mod audit;
mod client_source;
pub mod coordination;
pub mod external;
mod hash_upgrades;

pub mod http_client;
pub mod inbox;
pub mod machine;
pub mod node_access;
pub mod output;
mod panics;
pub mod password_checks;
pub mod pools;
pub mod registry;
pub mod state_files;
mod tasks;
mod timestamp;
pub mod users;

pub use client_source::client_source;
pub use panics::abort_on_panic;
pub use timestamp::iso_8601;
