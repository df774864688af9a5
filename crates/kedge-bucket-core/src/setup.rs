//! The environment that a bucket is opened with.

use crate::serving::ServingGate;
use crate::settings::BucketConfig;
use kedge_disk::Disk;
use kedge_encryption::Keyring;
use kedge_executor::Executor;
use kedge_log::RecoveryMode;
use kedge_types::{Clock, DocKey, Now, VbId};
use kedge_vbucket::{Completion, Cookie, Topology};
use std::path::PathBuf;
use std::sync::Arc;

/// The receiver of the completions of parked commands. Called by the bucket's tasks, or by a front-end thread that commits.
pub trait Completions: Send + Sync {
    /// Takes the completions in `done`.
    fn complete(&self, done: &mut Vec<(Cookie, Completion)>);

    /// Returns whether a front-end thread reads the documents of its commands itself.
    fn reads_for_itself(&self, thread: u16) -> bool {
        let _ = thread;
        false
    }

    /// Returns the waits of the front-end threads for a processor since their start, if the system counts them.
    fn processor_waits(&self) -> Option<ProcessorWaits> {
        None
    }

    /// Makes all threads return the memory that other threads have freed. An allocator keeps blocks for the thread that
    /// allocated them, and one that sleeps does not look for them.
    fn return_memory(&self) {}
}

/// The waits of threads for a processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorWaits {
    /// The time in nanoseconds for which they were ready to run and waited.
    pub waited_ns: u64,
    /// The number of times that they ran.
    pub runs: u64,
}

impl ProcessorWaits {
    /// Returns the mean wait since an earlier count, in microseconds. `None` if they did not run since.
    #[must_use]
    pub fn mean_us_since(self, earlier: Self) -> Option<u64> {
        let waited_ns = self.waited_ns.saturating_sub(earlier.waited_ns);
        let runs = self.runs.saturating_sub(earlier.runs);
        (waited_ns / 1_000).checked_div(runs)
    }
}

/// The thread and the time of a command.
#[derive(Clone, Copy, Debug)]
pub struct Ctx {
    /// The time.
    pub now: Now,
    /// Index of the front-end thread, whose stripe of the counters is used.
    pub thread: u16,
}

/// The environment that a bucket is opened with.
#[derive(Clone)]
pub struct BucketSetup {
    /// The file system.
    pub disk: Arc<dyn Disk>,
    /// The bucket's own directory.
    pub dir: PathBuf,
    /// Its settings.
    pub config: BucketConfig,
    /// The data keys; `None` if the server has no master key. They have an active key if and only if the settings ask for
    /// encryption.
    pub keyring: Option<Arc<Keyring>>,
    /// The source of time.
    pub clock: Arc<dyn Clock>,
    /// The executor of the bucket's tasks, which belong to an owner `bucket:NAME`.
    pub executor: Executor,
    /// The receiver of completions.
    pub completions: Arc<dyn Completions>,
    /// The time until which the node serves its active vBuckets.
    pub serving: Arc<ServingGate>,
    /// Number of front-end threads, whose [`Ctx::thread`] is below it.
    pub threads: u16,
    /// The treatment of damage in the log.
    pub recovery: RecoveryMode,
    /// The nodes that have to acknowledge the SyncWrites of a vBucket until it is given a topology: [`Topology::alone`]
    /// for a bucket that is on this node only. `None` in a cluster: an active commits no SyncWrite before it has a topology, and
    /// a vBucket that was active before a start is pending until it is made active again.
    pub topology: Option<Topology>,
    /// Most files of vBuckets that the process can afford to keep open, whatever the settings say.
    pub open_files_max: u32,
    /// Bytes of the disk that are reserved for compactions on a full disk; 0 for none.
    pub compaction_reserve_bytes: u64,
    /// Called once when the bucket cannot go on without risking what it acknowledged (a sync failed, say). The
    /// process should end.
    pub on_fatal: Arc<dyn Fn(&str) + Send + Sync>,
}

/// The arguments that all reads share.
#[derive(Clone, Copy, Debug)]
pub struct Read<'a> {
    /// The vBucket.
    pub vb: VbId,
    /// The document.
    pub key: &'a DocKey,
    /// The cookie of its completion, if the read is parked.
    pub cookie: Cookie,
}
