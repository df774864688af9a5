//! The configuration of a bucket's files.

use std::sync::Arc;

use kedge_encryption::Keyring;

/// Settings of a [`crate::Storage`].
#[derive(Debug, Clone)]
pub struct StorageConfig {
    /// Number of vBuckets of the bucket.
    pub vbuckets: u16,
    /// `true` if files stay open after use.
    pub keep_files_open: bool,
    /// Largest number of files that stay open.
    pub max_open_files: usize,
    /// Memory limit of all open files, in bytes.
    pub open_files_bytes_max: u64,
    /// Memory limit of the node cache of one open file, in bytes. Interior nodes need about 16 bytes per document;
    /// leaves that lookups have read need 60 bytes per document and more.
    pub file_cache_bytes_max: usize,
    /// Keys of encrypted files; `None` leaves all files in plain text.
    pub keyring: Option<Arc<Keyring>>,
}

impl StorageConfig {
    /// Creates the default settings, which suit most buckets.
    #[must_use]
    pub fn new(vbuckets: u16) -> Self {
        StorageConfig {
            vbuckets,
            keep_files_open: true,
            max_open_files: 4096,
            open_files_bytes_max: 256 << 20,
            file_cache_bytes_max: 1 << 20,
            keyring: None,
        }
    }
}
