//! Connections of Kedge's tools and tests: blocking, one request at a time, every wait bounded.

mod connection;
mod error;
mod http;
mod topology;

pub use connection::{
    ClientConnection, ClientReply, FetchedDocument, LoginCredentials, StoredMutation,
};
pub use error::ClientError;
pub(crate) use error::status_text;
pub use http::{ManagementClient, encode};
pub use kedge_node::http_client::HttpReply;
pub use topology::BucketTopology;
