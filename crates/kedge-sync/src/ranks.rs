//! The registry of locks: a type for the rank of each, and the page that describes them.
//!
//! A new lock gets a row here. Its rank is above those of the locks that a thread holds when it takes the lock, and below those of
//! the locks that are taken while it is held. Ranks have gaps for that.

use std::fmt::Write as _;

/// The rank of a lock: a type of which there is no value.
pub trait Rank {
    /// Place in the order. A thread that holds a lock takes only locks of a higher rank.
    const ORDER: u8;
    /// Name of the lock in messages.
    const NAME: &'static str;
}

/// A row of the registry: locks that have the order and everything else in common.
struct Row {
    order: u8,
    locks: &'static [&'static str],
    guards: &'static str,
    held_by: &'static str,
    held_over: &'static str,
}

macro_rules! ranks {
    ($($order:literal, $guards:literal, $held_by:literal, $held_over:literal: $($name:ident = $lock:literal),+;)*) => {
        $($(
            #[doc = concat!("The rank of ", $lock, ".")]
            #[derive(Debug)]
            pub enum $name {}

            impl Rank for $name {
                const ORDER: u8 = $order;
                const NAME: &'static str = $lock;
            }
        )+)*

        const ROWS: &[Row] = &[$(Row {
            order: $order,
            locks: &[$($lock),+],
            guards: $guards,
            held_by: $held_by,
            held_over: $held_over,
        }),*];
    };
}

// Order, guarded data, holders, work that is done under the lock: rank = lock.
ranks! {
    0, "changes of the cluster map made by this node, one at a time", "management", "communication with the other nodes, until they follow":
        ClusterChanging = "`ClusterNode::changing`";
    0, "changes of the cluster's users made by this node, one at a time", "management, start-up", "communication with the coordination store and the other nodes, until they follow":
        ClusterUsersChanging = "`ClusterUsers::changing`";
    10, "creating, changing and dropping buckets, one at a time", "management", "opening and closing buckets, files":
        RegistryChange = "`BucketRegistry::change`";
    10, "changing the state of a vBucket, and rolling it back, one at a time", "the tasks `vbucket_state` and `rollback`", "syncs, reads and commits of its file":
        VbucketChanging = "`Bucket::changing[i]`";
    12, "applying a manifest of collections to all vBuckets, one at a time", "management, the thread `kedge-cluster`", "vBuckets, one after the other":
        ManifestChanging = "`Collections::changing`";
    20, "the current map, and its waiters", "management, the threads `kedge-store`, `kedge-moves` and `kedge-cluster`", "the write of `cluster-map.json`":
        ClusterCurrent = "`Followed::current`";
    20, "the last report of another node", "management, the threads `kedge-peer-NAME` and `kedge-cluster`", "nothing":
        PeerStatusRank = "`Peer::status`";
    20, "the times and the state of the node's lease", "management, the threads `kedge-lease` and `kedge-cluster`", "nothing":
        NodeLeaseState = "`NodeLease::state`";
    20, "the other nodes", "management, the threads of the cluster", "the start of threads":
        ClusterPeers = "`Peers::met`";
    20, "the manifests of the buckets, with the next ids", "management, the thread `kedge-cluster`", "nothing":
        ManifestKeepers = "`BucketRegistry::keepers`";
    20, "changing users, one change at a time", "management, start-up", "the write of `users.json`":
        UsersSave = "`Users::save`";
    20, "a new revision of the cluster map and its file", "management", "the write of `cluster.json`":
        ClusterViewSave = "`ClusterView::save`";
    20, "the changes that the log applier is writing", "the task `log_apply`, which only tries the lock; deletion and rollback of a vBucket; loading and shutdown", "commits of vBuckets' files; a rollback's search for its commit; ending the process":
        LogApplier = "`LogApplier::appliers[i]`";
    20, "without a log: the vBuckets that are written next", "the task `flush`; a front-end thread that leads a commit (it tries the lock and does not wait for it); a flush of the bucket; shutdown", "commits of vBuckets' files; handing over completions, which takes an inbox's lock; ending the process":
        FlusherRank = "`FlusherShard::flusher`";
    21, "vBuckets that were taken over", "the threads `kedge-repl` and `kedge-moves`, which may hold `Followed::current`", "nothing":
        ClusterTaken = "`ClusterNode::taken`";
    22, "the handle of the coordination store, and its last error", "management, the threads of the cluster, which may hold `Followed::current`", "opening the store":
        ClusterStore = "`Store::state`";
    22, "the nodes that are not followed for now", "management, the thread `kedge-cluster`, which may hold `Followed::current`", "nothing":
        ClusterFenced = "`ClusterNode::fenced`";
    22, "the leases of the members, as seen in the coordination store", "management, the threads of the cluster", "nothing":
        ClusterSeen = "`ClusterNode::seen`";
    22, "the last decision about automatic failovers", "management, the thread `kedge-orchestrator`", "nothing":
        ClusterDecision = "`ClusterNode::auto_failover`";
    22, "the judgement of a node's disk", "management, the thread `kedge-lease`", "nothing":
        ClusterJudge = "`ClusterNode::disk_judge`";
    24, "its file", "the task `audit_log`, management, shutdown", "writes and syncs of the file, its rotation, changes of its data keys":
        AuditFile = "`Log::file` of the audit log";
    25, "the state of a node that runs alone, and its marks", "management, start-up", "writes of `cluster.json`":
        AloneState = "`StateFile::kept`";
    25, "changes of the data keys of a bucket, or of the audit log, one at a time", "management, start-up, the tasks `encryption_keys` and `audit_log`", "the write of `encryption.keys`, and the requests to the key management service of the master key":
        KeyringChange = "`Keyring::change`";
    30, "the list of state files in a directory, while a name is added", "whoever saves one of them", "reads and writes of `files.json`":
        StateFiles = "`CHANGE` of `state_files`";
    30, "the listeners for new revisions", "management", "the listeners, which only leave a message for each front-end thread":
        ClusterListeners = "`ClusterView::listeners`";
    30, "operations on a whole file of a vBucket: compaction, rollback, replacing, removing", "the bucket's tasks; the holder of an applier or flusher", "all of it, including the pauses of a compaction and the log's sync of a rollback's record; a compaction only tries the lock, and ends soon when another thread waits":
        SlotMaintenance = "`Slot::maintenance`";
    30, "the files that are still to be read into memory", "the tasks `warmup`, `load` and `warmup_documents`", "one listing of all files and the access log; other workers only try the lock meanwhile":
        WarmupJobs = "`Warmup::jobs`";
    40, "the position of the item pager", "the task `item_pager`; `bg_fetch` above the quota", "vBuckets, one after the other, for 3 ms":
        PagerSweep = "`ItemPager::sweep`";
    40, "the log and the batch being written", "the task `log_commit`; a front-end thread that leads a commit (it tries the lock and does not wait for it); a flush of the bucket; shutdown", "append and sync; handing over completions, which takes an inbox's lock; ending the process":
        CommitterRank = "`CommitLog::committer`";
    40, "the right to write to a vBucket's file, and to replace it", "the bucket's tasks; the holder of an applier or flusher; the tasks `log_apply` and `flush` continue with another vBucket instead of waiting", "reads, writes and syncs of the file; looking at any slot's current file":
        SlotWritten = "`Slot::written`";
    48, "the readers that wait for a file", "whoever reads streams, applies or flushes a vBucket", "a look at the history of the vBucket":
        FileWaiters = "`Files::waiters`";
    50, "the thread of the replication", "whoever changes the plan, shutdown", "the start of the thread":
        ReplicationThread = "`Replicator::thread`";
    50, "the valid file of a vBucket, and the handle that is kept open", "whoever reads or writes files; a front-end thread only tries the lock", "opening and removing the file":
        SlotCurrent = "`Slot::current`";
    50, "one vBucket: hash table, checkpoints, prepares", "front-end threads, the bucket's tasks", "nothing that blocks":
        Vbucket = "`BucketCore::vbuckets[i]`";
    55, "the segment that is being preallocated", "the task `log_segment`", "the writes of a step":
        SegmentPreallocation = "preallocation of log segments";
    55, "the latencies of clients' requests at the end of the last window of `CompactionThrottle::state`", "compactions and new copies", "reads of the system's figures of threads":
        ThrottleClients = "`Clients::requests`";
    60, "sessions that tasks give back", "front-end threads, tasks", "nothing":
        ReturnedSessions = "`FrontEnd::returned`";
    60, "vBuckets whose files took no changes when that was last tried", "the holder of an applier or flusher", "nothing":
        StuckFiles = "`StuckFiles::vbuckets`";
    60, "the receiver of a replica's acknowledgements", "the thread `kedge-repl`, the bucket's tasks", "nothing":
        ReplicaSinkRank = "`Receiving::sink`";
    60, "the frequencies of evicted documents", "the item pager, statistics", "nothing":
        PagerEvicted = "`ItemPager::evicted`";
    60, "vBuckets that have changes for the log, or a file", "as above", "nothing":
        DirtyListRank = "`DirtyList`",
        FlusherLists = "`FlusherShard::lists`",
        ApplierNew = "`ApplierShard::incoming`";
    60, "the reads that a front-end thread makes itself", "that thread, shutdown", "nothing":
        FetchesLocated = "`BackgroundFetcher::located[i]`";
    60, "operations that wait for the disk, for memory, or for the state of their vBucket", "front-end threads, the tasks `bg_fetch` and `memory_admission`, changes of a vBucket's state, shutdown", "nothing":
        ParkedLane = "`ParkedOperations::lanes[i]`";
    60, "open streams, their news, items that were read and not sent", "readers of streams, the task `dcp_backfill`, threads that change, apply or flush a vBucket", "nothing: readers are notified without any of them":
        DcpOpen = "`Dcp::open[i]`",
        DcpNews = "`Dcp::news`",
        FileArrival = "a requested file",
        StreamStateRank = "the state of a stream",
        NewBackfills = "new backfills of a connection";
    60, "the position of a range scan", "the task `range_scan` that continues it; nobody else takes it", "reads of the file; no vBucket is locked meanwhile":
        ScanPositionRank = "`OpenScan::position`";
    60, "open range scans; those that are being created or continued", "front-end threads, the task `range_scan`, statistics, shutdown", "nothing":
        ScansOpen = "`Scans::open`",
        ScanQueue = "`ScanLane::queue`";
    60, "files that are being sent to other nodes", "the tasks `file_copy` and `file_copy_end`, front-end threads", "nothing: files are read without it":
        FilesSent = "`FileSnapshots::open`";
    60, "queued and running compactions, their rate, the files to be examined, the waiters", "any", "nothing; waiters are notified without any of them":
        CompactionQueue = "`Compactions::queue`",
        CompactionThrottleState = "`CompactionThrottle::state`",
        ChangedFiles = "`FileList::list`",
        DeferredFiles = "`ChangedFiles::deferred`",
        CompactionTicketState = "the state of a ticket";
    60, "the log's changes of vBuckets whose files cannot be read", "the task `warmup`; a reset of such a vBucket", "nothing":
        QuarantineLogged = "`Quarantine::logged`";
    60, "the last results of the task `encryption_keys`", "that task, management, statistics", "nothing":
        EncryptionResults = "`EncryptionState::results`";
    60, "the remaining parts of the work of a start", "the tasks `warmup` and `load`", "nothing":
        ParallelState = "`ParallelForEach::state`";
    60, "settings, figures, the outcome of loading", "any", "nothing":
        BucketSettings = "`Bucket::config`",
        BucketLogStats = "`CommitLog::stats`",
        LoadedOutcome = "`LoadStatus`";
    60, "the manifest of collections that the bucket follows", "any", "nothing":
        CollectionsManifest = "`Collections::manifest`";
    60, "the number of pauses of compactions that were ended early", "compactions before they pause; whoever ends pauses", "nothing: a paused compaction waits on a condition variable of it, and holds `Slot::maintenance`":
        ThrottlePauses = "`ThrottlePause`";
    60, "the least recently used file", "the holder of a `Slot::current`; the search for files to close", "nothing":
        OpenFileList = "list of open files";
    60, "the pending `flush_all`", "front-end threads, the task `delayed_flush`", "nothing":
        PendingFlush = "`DelayedFlush::pending`";
    60, "connections of the memcached port, for `stats conns` and evictions", "front-end threads, the thread `kedge-accept`", "nothing":
        MemcachedOpen = "`MemcachedConnections::open`";
    60, "reserved memory of requests, and connections that wait for memory", "front-end threads, statistics", "nothing: waiters are notified without it":
        RequestLedger = "`RequestMemory::ledger`";
    60, "passwords that wait to be verified", "front-end threads, management, the task `authentication`", "nothing":
        PasswordQueue = "`PasswordChecks::queue`";
    60, "failed logins by user and address", "front-end threads, management, the task `authentication`", "a search for the entry that gives way":
        LoginFailures = "`LoginGuard::failures`";
    60, "logins of external users that were verified", "front-end threads, management, the thread `kedge-external`", "a search for the login that gives way":
        ExternalLogins = "`Authority::cache`";
    60, "logins of external users that wait for a directory", "front-end threads, management, the thread `kedge-external`", "nothing":
        ExternalWaiting = "`Authority::waiting`";
    60, "nonces of requests between nodes", "management; threads that talk to other nodes", "computing one HMAC":
        UsedNonces = "`ProofChecks::proofs`",
        NextNonce = "`NodeRequests::nonce`";
    60, "the keys of issuers of tokens", "the thread `kedge-external`", "nothing":
        TokenKeys = "`KeyRing::issuers`";
    60, "the last error of the key management service of the master key", "start-up, management, the task `encryption_keys`, statistics", "nothing":
        MasterKeyFailure = "`Requests::failure`";
    60, "hashes of proven passwords that wait to be saved", "the task `authentication`, management, the task `password_hashes`", "nothing":
        HashUpgradesWaiting = "`HashUpgrades::waiting`";
    60, "connections without a login", "front-end threads, the thread `kedge-accept`", "nothing":
        NewConnections = "`UnauthenticatedConnections`";
    60, "the owners of the management port's connections", "management", "nothing":
        ManagementPlaces = "`ConnectionSlots`";
    60, "the sessions of the console", "management", "nothing":
        ConsoleSessions = "`Sessions`";
    60, "the requested number of threads of each pool", "management, start-up", "starting threads, which takes locks of the executor":
        PoolConfig = "`TaskPools::config`";
    60, "vBuckets of a DCP connection that have news", "writers, tasks", "nothing":
        MailboxReady = "`Mailbox::ready`";
    60, "names and figures of DCP connections", "front-end threads", "reading the figures of connections; ending one, which takes an inbox's lock":
        DcpConnectionsOpen = "`DcpConnections::open`";
    60, "the status of replication", "the thread `kedge-repl`, statistics, management", "nothing":
        ReplicationBoard = "`ReplicationStatus`",
        LinkBoard = "`LinkStatus`";
    60, "states of documents that a client recaches", "front-end threads", "nothing":
        RecacheMap = "`RecacheStates::map`";
    60, "times of groups of statistics", "front-end threads", "nothing":
        StatTimes = "`StatTimings`";
    60, "connections by address", "front-end threads, statistics", "nothing":
        ClientAddressMap = "`ClientAddresses`";
    60, "the segments that must exist", "the log, the task `log_segment`", "writing 32 bytes; with a sync before a segment is removed":
        LogCatalog = "catalog of a log";
    60, "preallocated and free segments", "the log, the task `log_segment`", "nothing; preallocation has a lock of its own that only that task takes, held over the writes of a step":
        SegmentPool = "pool of log segments";
    60, "lines that wait to be written", "logins and refusals, the task `audit_log`, shutdown", "nothing":
        AuditWaiting = "`Log::waiting` of the audit log";
    60, "recently verified passwords", "logins, management", "nothing":
        VerifiedPasswords = "cache of verified passwords";
    65, "figures of a DCP connection", "front-end threads", "nothing":
        DcpConnectionFigures = "the figures of a DCP connection";
    67, "messages for one front-end thread, or that of the replication", "any", "nothing":
        InboxMessages = "`Inbox`";
}

const BEFORE: &str = "\
# Locks

Generated from the registry in `crates/kedge-sync/src/ranks.rs`; a test checks that this file is current.

A thread that holds a lock of the table may take only locks with a higher number. Two locks with the same number are
never held together. The rank of a lock is part of its type, and builds with debug assertions check the order at every lock. A
lock that is only tried may be of any rank, as the thread does not wait. No lock is held over a system call on a socket, over an
`.await`, or over a callback, except where the table says so.

";

const AFTER: &str = "\
| - | those of the executor | run queues, timers, a task's body, owners, the list of threads | any: waking and snoozing is \
allowed under any lock | nothing, except that the list of threads is held over a run queue's lock and over starting threads; no \
task runs under one |

The locks of the executor have no rank: no other lock is taken under them.

Data that many threads read is not behind a lock: buckets, the cluster map and users are snapshots that are swapped as a
whole.

* A front-end thread holds at most one vBucket's lock. A small response is composed under it; a large value is counted,
  and sent without it.
* The log writer, appliers and flushers take the locks of vBuckets one after the other, never two at once, and none over
  a commit.
* `Executor::unregister` and `shutdown` wait for tasks, so a caller holds no lock that a task takes: of this table, at
  most those of order 10 or less.
* Completions of parked commands are handed over after the vBucket's lock was released.
* The order is kept by construction: a function that needs a vBucket gets the guard or `&mut VBucket` as an argument.
";

/// The text of `docs/reference/locks.md`.
#[must_use]
pub fn markdown() -> String {
    let mut out = BEFORE.to_owned();
    out.push_str("| order | lock | guards | held by | held over |\n|---|---|---|---|---|\n");
    for row in ROWS {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} |",
            row.order,
            row.locks.join(", "),
            row.guards,
            row.held_by,
            row.held_over
        );
    }
    out + AFTER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/locks.md");
        let page = markdown();
        if std::env::var_os("KEDGE_UPDATE_DOCS").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        assert!(
            std::fs::read_to_string(path).unwrap_or_default() == page,
            "docs/reference/locks.md is out of date: run `make config-doc`"
        );
    }

    #[test]
    fn rows_are_in_their_order() {
        assert!(ROWS.is_sorted_by_key(|row| row.order));
    }
}
