//! CommandCounters of a bucket. Those of commands are striped by thread, so that counting costs no shared cache line.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A counter of commands. The names are those of the general statistics.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Counter {
            $($(#[$doc])* $name,)*
        }

        impl Counter {
            /// All counters.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns its name in the statistics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

counters! {
    /// Reads.
    CmdGet = "cmd_get",
    /// Reads that found a document.
    GetHits = "get_hits",
    /// Reads that found none.
    GetMisses = "get_misses",
    /// Stores and concats.
    CmdSet = "cmd_set",
    /// Deletes that found a document.
    DeleteHits = "delete_hits",
    /// Deletes that found none.
    DeleteMisses = "delete_misses",
    /// Increments that found or made a counter.
    IncrHits = "incr_hits",
    /// Increments that did not.
    IncrMisses = "incr_misses",
    /// Decrements that found or made a counter.
    DecrHits = "decr_hits",
    /// Decrements that did not.
    DecrMisses = "decr_misses",
    /// Touches.
    CmdTouch = "cmd_touch",
    /// Touches that found a document.
    TouchHits = "touch_hits",
    /// Touches that found none.
    TouchMisses = "touch_misses",
    /// Writes whose CAS was that of the document.
    CasHits = "cas_hits",
    /// Writes with a CAS that found no document.
    CasMisses = "cas_misses",
    /// Writes whose CAS was another.
    CasBadval = "cas_badval",
    /// Reads that locked.
    CmdLock = "cmd_lock",
    /// Commands on a document that another command had locked.
    LockErrors = "lock_errors",
    /// Sub-document lookups, of one path or several.
    SubdocLookups = "cmd_subdoc_lookup",
    /// Sub-document mutations, of one path or several.
    SubdocMutations = "cmd_subdoc_mutation",
    /// Stores with metadata.
    SetWithMeta = "ep_num_ops_set_meta",
    /// Those that lost the conflict against the existing document.
    SetWithMetaLost = "ep_num_ops_set_meta_res_fail",
    /// Deletes with metadata.
    DeleteWithMeta = "ep_num_ops_del_meta",
    /// Those that lost the conflict against the existing document.
    DeleteWithMetaLost = "ep_num_ops_del_meta_res_fail",
    /// Flushes of the bucket.
    CmdFlush = "cmd_flush",
    /// Writes that were refused for lack of memory.
    TmpOomErrors = "ep_tmp_oom_errors",
    /// Writes whose response was delayed because the disk was behind.
    Backpressured = "ep_backpressured_writes",
    /// Writes that waited for memory before they were done.
    MemoryAdmissionWaits = "ep_memory_admission_waits",
    /// SyncWrites that began.
    SyncWriteAccepted = "vb_active_sync_write_accepted_count",
    /// SyncWrites that were committed.
    SyncWriteCommitted = "vb_active_sync_write_committed_count",
    /// SyncWrites that were aborted.
    SyncWriteAborted = "vb_active_sync_write_aborted_count",
}

/// The counts of one thread. Only that thread adds to them.
#[derive(Debug)]
#[repr(align(128))]
struct Stripe([AtomicU64; Counter::ALL.len()]);

/// The counters of a bucket's commands: a stripe for each front-end thread, and one for all other threads.
#[derive(Debug)]
pub struct CommandCounters {
    stripes: Box<[Stripe]>,
}

impl CommandCounters {
    /// Returns counters that are 0, with a stripe for each front-end thread.
    pub fn new(threads: u16) -> Self {
        let stripe = || Stripe(std::array::from_fn(|_| AtomicU64::new(0)));
        Self {
            stripes: (0..=threads).map(|_| stripe()).collect(),
        }
    }

    /// Adds on behalf of a thread that is no front-end thread.
    pub fn add_shared(&self, counter: Counter, by: u64) {
        if let Some(stripe) = self.stripes.last() {
            stripe.0[counter as usize].fetch_add(by, Ordering::Relaxed);
        }
    }

    /// Adds on behalf of `thread`, the only one that writes to its stripe; so no atomic addition is needed.
    pub fn add(&self, thread: u16, counter: Counter, by: u64) {
        let Some(stripe) = self.stripes.get(usize::from(thread)) else {
            return;
        };
        let cell = &stripe.0[counter as usize];
        cell.store(cell.load(Ordering::Relaxed) + by, Ordering::Relaxed);
    }

    /// Returns a count over all threads.
    pub fn sum(&self, counter: Counter) -> u64 {
        self.stripes
            .iter()
            .map(|stripe| stripe.0[counter as usize].load(Ordering::Relaxed))
            .sum()
    }

    /// Sets all counts to 0.
    pub fn reset(&self) {
        for cell in self.stripes.iter().flat_map(|stripe| &stripe.0) {
            cell.store(0, Ordering::Relaxed);
        }
    }
}

macro_rules! totals {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A counter of the work that the bucket does by itself.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Total {
            $($(#[$doc])* $name,)*
        }

        impl Total {
            /// All counters.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns its name in the statistics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

totals! {
    /// Commits of vBuckets' files that applied changes of the log.
    ApplyCommits = "ep_apply_commits",
    /// Documents, tombstones, prepares and aborts in them.
    AppliedItems = "ep_applied_items",
    /// Bytes of these, keys and overhead included.
    AppliedBytes = "ep_applied_bytes",
    /// Attempts to apply that failed.
    ApplyFailures = "ep_apply_failures",
    /// Attempts to apply or flush that were deferred, as a compaction had the file.
    ApplyDeferrals = "ep_apply_deferrals",
    /// Pauses of appliers within a commit.
    ApplyThrottles = "ep_apply_throttles",
    /// Rollbacks of vBuckets, including resets.
    Rollbacks = "ep_rollback_count",
    /// Rollbacks that reset the vBucket, which is empty then.
    RollbackResets = "ep_rollback_resets",
    /// vBuckets that were deleted.
    DeletedVbuckets = "ep_deleted_vbuckets",
    /// Commits of vBuckets' files without a log.
    FlushCommits = "ep_flush_commits",
    /// Attempts at them that failed.
    FlushFailures = "ep_flush_failures",
    /// Compactions of vBuckets' files that replaced the file.
    Compactions = "ep_compactions",
    /// Compactions that failed.
    CompactionFailures = "ep_compaction_failed",
    /// Compactions that were cancelled, or ended because another task needed the file.
    CompactionsCancelled = "ep_compaction_aborted",
    /// Bytes that compactions read and wrote.
    CompactionBytes = "ep_compaction_bytes",
    /// Bytes by which files became smaller.
    CompactionFreedBytes = "ep_compaction_freed_bytes",
    /// Tombstones that compactions purged.
    PurgedTombstones = "ep_compaction_purged_tombstones",
    /// Expired documents that compactions found and deleted.
    ExpiredByCompaction = "ep_expired_compactor",
    /// Documents that were read from disk for commands.
    Fetched = "ep_bg_fetched",
    /// Documents of which commands needed metadata only.
    MetaFetched = "ep_bg_meta_fetched",
    /// Documents that front-end threads read themselves.
    FetchedByFrontEnds = "ep_bg_fetched_by_front_ends",
    /// Commands that waited for a document to be read.
    FetchSamples = "ep_bg_num_samples",
    /// Time that they waited for the read to begin, in microseconds.
    FetchWaitUs = "ep_bg_wait",
    /// Time that the reads of files took, in microseconds.
    FetchLoadUs = "ep_bg_load",
    /// Documents that could not be read.
    FetchFailures = "ep_bg_fetch_failures",
    /// vBuckets whose files could not be read, and that were reset.
    VbResets = "ep_vb_resets",
    /// Passes of the item pager.
    PagerRuns = "ep_num_pager_runs",
    /// Values that were evicted.
    ValueEjects = "ep_num_value_ejects",
    /// Values that the item compressor tried to compress.
    CompressorVisited = "ep_item_compressor_num_visited",
    /// Values that it keeps compressed.
    Compressed = "ep_item_compressor_num_compressed",
    /// Bytes by which they became smaller.
    CompressorSavedBytes = "ep_item_compressor_saved_bytes",
    /// Documents and tombstones that the defragmenter visited.
    DefragmenterVisited = "ep_defragmenter_num_visited",
    /// Those that it moved.
    DefragmenterMoved = "ep_defragmenter_num_moved",
    /// Times that streams began to read a file.
    Backfills = "ep_dcp_backfills",
    /// Backfills in the order of keys.
    UnorderedBackfills = "ep_dcp_oso_backfills",
    /// Changes that streams read from files.
    BackfilledItems = "ep_dcp_backfilled_items",
    /// Backfills that failed, as the file could not be read.
    BackfillFailures = "ep_dcp_backfill_failures",
    /// Time in microseconds for which the throttle delayed backfills and reads of files that build new copies.
    CopiesPausedUs = "ep_dcp_backfill_paused_us",
    /// vBuckets that were filled with a copy of another node's file.
    FileCopies = "ep_file_copies",
    /// Bytes of these files.
    FileCopyBytes = "ep_file_copy_bytes",
    /// Copies of files that failed, after which DCP sent the changes.
    FileCopyFailures = "ep_file_copy_failures",
    /// Bytes of files that were sent for copies on other nodes.
    FileCopySentBytes = "ep_file_copy_sent_bytes",
    /// Times that the slowest cursors of a vBucket were dropped, as streams kept too many changes in memory.
    CursorsDropped = "ep_cursors_dropped",
    /// Streams that returned to their file after that.
    StreamsBackToFile = "ep_dcp_streams_back_to_file",
    /// Changes that replicas received.
    ReceivedItems = "ep_dcp_received_items",
    /// Times that such changes were not accepted yet, as memory was short.
    ReceivedLater = "ep_dcp_backpressured_items",
    /// Range scans that were made.
    RangeScans = "ep_range_scans",
    /// Range scans that their clients cancelled.
    RangeScansCancelled = "ep_range_scans_cancelled",
    /// Range scans that were dropped because no client continued them.
    RangeScansIdle = "ep_range_scans_idle",
    /// Keys and documents that range scans returned.
    RangeScanItems = "ep_range_scan_items",
    /// Bytes of these, keys and values.
    RangeScanBytes = "ep_range_scan_bytes",
    /// Rounds over a vBucket's memory for documents of dropped collections.
    DroppedSweeps = "ep_dropped_collection_sweeps",
    /// Documents and tombstones of dropped collections that these rounds removed from memory.
    DroppedSwept = "ep_dropped_collection_items_swept",
    /// Documents that were evicted with their keys.
    ItemEjects = "ep_num_item_ejects",
}

/// The counters of a bucket's own work, which are used seldom enough to be shared by all threads.
#[derive(Debug)]
pub struct BucketTotals([AtomicU64; Total::ALL.len()]);

impl Default for BucketTotals {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl BucketTotals {
    /// Adds to a count.
    pub fn add(&self, total: Total, by: u64) {
        self.0[total as usize].fetch_add(by, Ordering::Relaxed);
    }

    /// Returns a count.
    pub fn get(&self, total: Total) -> u64 {
        self.0[total as usize].load(Ordering::Relaxed)
    }

    /// Sets all counts to 0.
    pub fn reset(&self) {
        for cell in &self.0 {
            cell.store(0, Ordering::Relaxed);
        }
    }
}
