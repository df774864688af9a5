//! The component that reads documents into memory at a start, and its statistics.

use super::jobs::WarmupPlan;
use super::progress::StageProgress;
use kedge_bucket_core::{BucketCore, Component};
use kedge_sync::{
    RankedMutex,
    ranks::{Vbucket, WarmupJobs},
};
use kedge_vbucket::VBucket;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// The stage of warmup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum WarmupStage {
    Initialise = 0,
    KeyDump = 1,
    LoadingAccessLog = 2,
    LoadingKvPairs = 3,
    LoadingData = 4,
    Done = 5,
}

impl WarmupStage {
    const ALL: [Self; 6] = [
        Self::Initialise,
        Self::KeyDump,
        Self::LoadingAccessLog,
        Self::LoadingKvPairs,
        Self::LoadingData,
        Self::Done,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            // The names that operators of Couchbase know.
            Self::Initialise => "initialize",
            Self::KeyDump => "loading keys",
            Self::LoadingAccessLog => "loading access log",
            Self::LoadingKvPairs => "loading k/v pairs",
            Self::LoadingData => "loading data",
            Self::Done => "done",
        }
    }
}

/// The warmup of a bucket.
#[derive(Debug)]
pub struct Warmup {
    pub(super) core: Arc<BucketCore>,
    /// `None` until a worker has planned them.
    pub(super) jobs: RankedMutex<WarmupJobs, Option<WarmupPlan>>,
    pub(super) stage: AtomicU8,
    /// Workers that have not ended.
    pub(super) workers: AtomicUsize,
    pub(super) began_ns: AtomicU64,
    pub(super) keys_us: AtomicU64,
    pub(super) took_us: AtomicU64,
    /// Documents in the files and in the log.
    pub(super) estimated: AtomicU64,
    /// Bytes that are being put into memory.
    pub(super) reserved: AtomicU64,
    pub(super) keys: AtomicU64,
    pub(super) values: AtomicU64,
    /// Documents of the access log that were loaded.
    pub(super) hot: AtomicU64,
    pub(super) failures: AtomicU64,
    /// Documents of the access log that are to be loaded.
    pub(super) hot_planned: AtomicU64,
    pub(super) progress: StageProgress,
}

impl Component for Warmup {
    fn core(&self) -> &BucketCore {
        &self.core
    }
}

impl Warmup {
    pub(crate) fn new(core: &Arc<BucketCore>) -> Self {
        Self {
            core: Arc::clone(core),
            jobs: RankedMutex::default(),
            stage: AtomicU8::default(),
            workers: AtomicUsize::default(),
            began_ns: AtomicU64::default(),
            keys_us: AtomicU64::default(),
            took_us: AtomicU64::default(),
            estimated: AtomicU64::default(),
            reserved: AtomicU64::default(),
            keys: AtomicU64::default(),
            values: AtomicU64::default(),
            hot: AtomicU64::default(),
            failures: AtomicU64::default(),
            hot_planned: AtomicU64::default(),
            progress: StageProgress::default(),
        }
    }

    pub(super) fn stage(&self) -> WarmupStage {
        WarmupStage::ALL
            [usize::from(self.stage.load(Ordering::Relaxed)).min(WarmupStage::ALL.len() - 1)]
    }

    /// Returns whether documents are still being read into memory.
    #[must_use]
    pub fn is_warming(&self) -> bool {
        self.stage() != WarmupStage::Done
    }

    /// Returns the numbers of keys and values that were read into memory, and of documents in the files.
    pub(crate) fn figures(&self) -> [(&'static str, u64); 3] {
        let of = |number: &AtomicU64| number.load(Ordering::Relaxed);
        [
            ("ep_warmup_key_count", of(&self.keys)),
            ("ep_warmup_value_count", of(&self.values)),
            ("ep_warmup_estimated_key_count", of(&self.estimated)),
        ]
    }

    /// Returns the number of vBuckets whose files were not read to the end: a command for a document that is not in memory
    /// looks there.
    fn count_cold(&self) -> usize {
        let is_cold = |vbucket: &&RankedMutex<Vbucket, VBucket>| {
            let vbucket = vbucket.lock();
            !vbucket.documents().is_warm() && !vbucket.is_quarantined()
        };
        self.core.vbuckets.iter().filter(is_cold).count()
    }

    /// Returns "running" or "complete".
    #[must_use]
    pub fn thread(&self) -> &'static str {
        if self.core.is_loading() || self.is_warming() {
            "running"
        } else {
            "complete"
        }
    }

    pub(super) fn warming_us(&self) -> u64 {
        let began_ns = self.began_ns.load(Ordering::Relaxed);
        let now_ns = self.core.setup.clock.now().mono_ns;
        now_ns.saturating_sub(began_ns) / 1_000
    }

    /// Calls `each` with the names and values of the statistics group `warmup`.
    pub fn stats(&self, each: &mut dyn FnMut(&str, &str)) {
        let stage = self.stage();
        each("ep_warmup", "enabled");
        each("ep_warmup_state", stage.name());
        each("ep_warmup_thread", self.thread());
        let behavior = self.core.config().memory.warmup_behavior.name();
        each("ep_warmup_behavior", behavior);
        let of = |number: &AtomicU64| number.load(Ordering::Relaxed).to_string();
        for (name, count) in self.figures() {
            each(name, &count.to_string());
        }
        each("ep_warmup_access_log", &of(&self.hot));
        each("ep_warmup_estimated_value_count", &of(&self.estimated));
        each("ep_warmup_failures", &of(&self.failures));
        each("ep_warmup_cold_vbuckets", &self.count_cold().to_string());
        each("ep_warmup_keys_time", &of(&self.keys_us));
        let time_us = match stage {
            WarmupStage::Done => self.took_us.load(Ordering::Relaxed),
            _ => self.warming_us(),
        };
        each("ep_warmup_time", &time_us.to_string());
    }
}
