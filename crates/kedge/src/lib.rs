//! The `kedge` binary as a library: the client of Kedge's tools, and the commands.
//!
//! Only [`cli::main`] and the parts that tests of the real process need are public.
//!
//! # Example
//!
//! The tools take addresses in the form of the SDKs:
//!
//! ```
//! use kedge::target::{Scheme, ServerUrl};
//!
//! let target = ServerUrl::parse("couchbase://127.0.0.1:12000/default")?;
//! assert_eq!(target.scheme, Some(Scheme::Couchbase));
//! assert_eq!((target.host.as_str(), target.port), ("127.0.0.1", Some(12000)));
//! assert_eq!(target.bucket.as_deref(), Some("default"));
//! # Ok::<(), kedge::target::TargetError>(())
//! ```

pub mod cli;
pub mod client;
mod cluster_run;
mod load;
mod output;
mod password;
mod permissions;
mod serve;
mod settings;
pub mod target;
mod tools;
