#![doc = include_str!("../README.md")]
//!
//! ## Invariants
//!
//! * A configuration that cannot be loaded never replaces one that works.
//! * A session can only be resumed under the configuration that made it, so a reload that revokes a client certificate
//!   or removes a CA ends resumption with it.
//! * Nothing here reads a passphrase from a command line, and errors never contain one.
//! * Names in a certificate are hostile input: they never panic, and a name with control characters is no user name.

mod auto;
mod certificate;
mod client;
mod client_auth;
mod client_demand;
mod client_stream;
mod development;
mod error;
mod files;
mod issue;
mod key;
mod metrics;
mod names;
mod node_auth;
mod provider;
mod server;
mod service;

pub use auto::{AutoFiles, ensure as ensure_auto};
pub use certificate::{CertificateInfo, fingerprint_of};
pub use client::{ClientTls, Trust};
pub use client_auth::{ClientAuth, ClientCerts};
pub use client_demand::ClientDemand;
pub use client_stream::ClientStream;
pub use development::DevelopmentCa;
pub use error::{NameError, TlsError};
pub use issue::{Issued, Request, Usage, issue, new_authority};
pub use key::Passphrase;
pub use metrics::{FailureReason, TlsMetrics};
pub use names::{NameRule, NameRules, NameSource, user_name};
pub use node_auth::NodeAuth;
pub use provider::{MinVersion, cipher_suite_names};
pub use server::{ServerTls, TlsOptions, TlsStatus};
pub use service::{ServiceTrust, service_config};

// The connection types of the ports, in one version.
pub use rustls;
