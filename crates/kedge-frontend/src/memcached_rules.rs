//! The permissions and limits of plain memcached clients.

use std::sync::Arc;

use kedge_auth::AuthFile;
use kedge_types::limits::VALUE_BYTES_MAX;

/// The permissions and limits of plain memcached clients.
#[derive(Clone, Debug)]
pub struct MemcachedRules {
    /// True if they have to log in first.
    pub login: bool,
    /// Users who may log in beside those of the server.
    pub auth_file: Option<Arc<AuthFile>>,
    /// True if they may empty the bucket, where the bucket allows it.
    pub flush_all: bool,
    /// Largest value that they may send, in bytes.
    pub item_bytes_max: usize,
}

impl Default for MemcachedRules {
    fn default() -> Self {
        Self {
            login: false,
            auth_file: None,
            flush_all: false,
            item_bytes_max: VALUE_BYTES_MAX,
        }
    }
}
