//! The `kedge` binary as a library: the client of our own tools, and the commands.
//!
//! Only [`cli::main`] and what the tests of the real process need are public.

pub mod cli;
pub mod client;
mod cluster_run;
mod load;
mod output;
mod permissions;
mod serve;
mod settings;
pub mod target;
mod tools;
