//! What a bucket says of its files.

/// Settings of a [`crate::Storage`].
#[derive(Debug, Clone)]
pub struct StorageConfig {
    /// vBuckets of the bucket.
    pub vbuckets: u16,
    /// Whether files stay open after they were used.
    pub keep_files_open: bool,
    /// Files that stay open at most.
    pub max_open_files: usize,
    /// Memory that files which stay open may take together, in bytes.
    pub open_files_bytes_max: u64,
    /// Memory for the nodes of one open file, in bytes: for interior nodes about 16 bytes a document, and for leaves that
    /// look-ups have read, 60 bytes a document and more.
    pub file_cache_bytes_max: usize,
}

impl StorageConfig {
    /// The settings that suit most buckets.
    #[must_use]
    pub fn new(vbuckets: u16) -> Self {
        StorageConfig {
            vbuckets,
            keep_files_open: true,
            max_open_files: 4096,
            open_files_bytes_max: 256 << 20,
            file_cache_bytes_max: 1 << 20,
        }
    }
}
