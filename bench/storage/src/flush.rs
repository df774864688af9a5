//! One vBucket, its file, and the steps by which a bucket writes queued changes to the file.

use std::borrow::Cow;
use std::sync::Arc;

use kedge_bench_common::counted::CountedDisk;
use kedge_bench_common::measure::{WorkCost, measure};
use kedge_bench_common::random::Random;
use kedge_bench_common::site::Site;
use kedge_bucket::BucketConfig;
use kedge_storage::{Storage, StorageConfig, StorageError};
use kedge_types::{Cas, CollectionId, DocKey, Expiry, Now, Seqno, VbId, VbUuid};
use kedge_vbucket::{
    Cookie, NewValue, PersistenceMode, RandomState, StepWrite, StoreMode, Topology, VBucket,
    VbSetup,
};

/// The length of a key in bytes, without the byte of its collection.
pub const KEY_BYTES: usize = 20;
/// The length of a value in bytes; values are random, so compression does not pay.
pub const VALUE_BYTES: usize = 64;

const VB: VbId = VbId(0);
/// The largest number of changes, and of their bytes, that go to the log at a time before the measurement.
const LOG_BATCH: (usize, usize) = (20_000, 16 << 20);

/// The way of changes to the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushMode {
    /// There is no log: the flusher writes them.
    Direct,
    /// They are in the log: the applier writes them.
    Logged,
}

impl FlushMode {
    /// Returns the limits of one commit of a bucket.
    #[must_use]
    pub fn limit(self) -> CommitLimit {
        match self {
            Self::Direct => CommitLimit::DIRECT,
            Self::Logged => CommitLimit::LOGGED,
        }
    }

    /// Returns the name in the results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Logged => "logged",
        }
    }
}

/// The limits of one commit, and of what is synced at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitLimit {
    /// `flusher_batch_max_items`.
    pub items: usize,
    /// `flush_batch_max_bytes`.
    pub bytes: usize,
    /// The bytes until which commits share their syncs: `flush_batch_max_bytes`, too.
    pub synced_bytes: u64,
}

impl CommitLimit {
    /// The defaults of a bucket.
    pub const LOGGED: Self = Self {
        items: BucketConfig::BATCH_ITEMS_DEFAULT,
        bytes: BucketConfig::BATCH_BYTES_DEFAULT,
        synced_bytes: BucketConfig::BATCH_BYTES_DEFAULT as u64,
    };
    /// The defaults without a log, where they are lower.
    pub const DIRECT: Self = Self {
        items: BucketConfig::DIRECT_BATCH_ITEMS_MAX,
        bytes: BucketConfig::DIRECT_BATCH_BYTES_MAX,
        synced_bytes: BucketConfig::BATCH_BYTES_DEFAULT as u64,
    };
    /// No limits.
    pub const OFF: Self = Self {
        items: usize::MAX,
        bytes: usize::MAX,
        synced_bytes: u64::MAX,
    };
}

const _: () = {
    assert!(CommitLimit::DIRECT.items <= CommitLimit::LOGGED.items);
    assert!(CommitLimit::DIRECT.bytes <= CommitLimit::LOGGED.bytes);
};

/// A vBucket with its file.
struct FlushRig {
    vbucket: VBucket,
    storage: Storage,
    disk: Arc<CountedDisk>,
    limit: CommitLimit,
    clock_ns: u64,
}

/// Queues `items` new documents in a vBucket whose open file has one document, then measures one flush of them. Returns
/// the cost, and the number of commits.
///
/// # Errors
/// The errors of the storage.
pub fn run(
    site: &Site,
    mode: FlushMode,
    limit: CommitLimit,
    items: u32,
) -> Result<(WorkCost, u64), StorageError> {
    let dir = site.path("files");
    let mut rig = FlushRig::new(site, mode, limit)?;
    let mut random = Random::new(items.into());
    rig.queue(u32::MAX, &mut random);
    rig.flush(mode)?;
    for number in 0..items {
        rig.queue(number, &mut random);
    }
    if mode == FlushMode::Logged {
        rig.log();
    }
    let commits = rig.storage.stats().commits;
    let disk = rig.disk.clone();
    let (flushed, taken) = measure(&disk, || rig.flush(mode));
    flushed?;
    rig.check(items);
    let commits = rig.storage.stats().commits - commits;
    drop(rig);
    std::fs::remove_dir_all(&dir).expect("the directory can be removed");
    Ok((taken, commits))
}

impl FlushRig {
    fn new(site: &Site, mode: FlushMode, limit: CommitLimit) -> Result<Self, StorageError> {
        let persistence = match mode {
            FlushMode::Direct => PersistenceMode::Direct,
            FlushMode::Logged => PersistenceMode::LogThenFile,
        };
        let vbucket = VBucket::new(VbSetup {
            id: VB,
            uuid: VbUuid(0x1234_5678_9abc),
            shards: 1,
            hasher: RandomState::default(),
            persistence,
            topology: Some(Topology::alone()),
        });
        let disk = Arc::clone(&site.disk);
        let dir = site.path("files");
        Ok(FlushRig {
            vbucket,
            storage: Storage::open(disk.clone(), &dir, &StorageConfig::new(1))?,
            disk,
            limit,
            clock_ns: 1_790_000_000_000_000_000,
        })
    }

    fn now(&mut self) -> Now {
        self.clock_ns += 1_000;
        Now {
            unix_ns: self.clock_ns,
            mono_ns: self.clock_ns,
        }
    }

    /// Stores a document, which then waits in the vBucket.
    fn queue(&mut self, number: u32, random: &mut Random) {
        let logical = format!("{:0KEY_BYTES$}", u64::from(number) * 7_368_787);
        let key = DocKey::new(CollectionId::DEFAULT, logical.as_bytes());
        let write = StepWrite {
            key: &key.expect("the key is short"),
            cas: Cas(0),
            durability: None,
            new_cas: Cas(0),
            preserve_ttl: false,
            cookie: Cookie(0),
            prebuilt: None,
        };
        let value = random.bytes(VALUE_BYTES);
        let value = NewValue::plain(Cow::Owned(value)).expect("the value is small");
        let now = self.now();
        let stored = self
            .vbucket
            .at(now)
            .store(&write, StoreMode::Set, &value, 0, Expiry::NEVER);
        stored.expect("nothing is in the way of a store");
    }

    /// Does the log writer's part without a log.
    fn log(&mut self) {
        let (items, bytes) = LOG_BATCH;
        let mut changes = Vec::new();
        loop {
            let to = self.vbucket.changes().for_log(items, bytes, &mut changes);
            if changes.is_empty() {
                return;
            }
            self.vbucket.on_logged(to);
            changes.clear();
        }
    }

    /// Writes everything to the file.
    fn flush(&mut self, mode: FlushMode) -> Result<(), StorageError> {
        match mode {
            FlushMode::Direct => self.flush_directly(),
            FlushMode::Logged => {
                self.log();
                self.apply()
            }
        }
    }

    /// Flushes as a flusher does in the background: batches, each a commit, which share their syncs, repeated while
    /// there is more.
    fn flush_directly(&mut self) -> Result<(), StorageError> {
        let CommitLimit {
            items,
            bytes,
            synced_bytes,
        } = self.limit;
        loop {
            let now_ns = self.now().unix_ns;
            let (Some(mut batch), mut to) = self.vbucket.store().direct_batch(items, bytes) else {
                return Ok(());
            };
            if batch.replaces_file() {
                self.storage.replace(VB, &batch.empty_state(), now_ns)?;
            }
            self.storage.commit_together(VB, now_ns, |commits| {
                loop {
                    for part in batch.parts(usize::MAX, usize::MAX) {
                        commits.write(part.items, &part.state, &mut || {})?;
                    }
                    if commits.written_bytes() >= synced_bytes {
                        return Ok(());
                    }
                    match self
                        .vbucket
                        .store()
                        .direct_batch_behind(&batch, to, items, bytes)
                    {
                        Some(next) => (batch, to) = next,
                        None => return Ok(()),
                    }
                }
            })?;
            self.vbucket.on_logged(to);
        }
    }

    /// Applies as an applier does: everything is taken at once, and written in parts, each a commit, which share their
    /// syncs.
    fn apply(&mut self) -> Result<(), StorageError> {
        let Some(mut batch) = self.vbucket.store_mut().begin_apply() else {
            return Ok(());
        };
        let now_ns = self.now().unix_ns;
        if batch.replaces_file() {
            self.storage.replace(VB, &batch.empty_state(), now_ns)?;
        }
        let history = batch.history();
        let mut parts = batch.parts(self.limit.items, self.limit.bytes).peekable();
        while parts.peek().is_some() {
            let upto = self.storage.commit_together(VB, now_ns, |commits| {
                let mut upto = Seqno(0);
                while commits.written_bytes() < self.limit.synced_bytes
                    && let Some(part) = parts.next()
                {
                    commits.write(part.items, &part.state, &mut || {})?;
                    upto = part.upto;
                }
                Ok(upto)
            })?;
            self.vbucket.store_mut().on_applied(history, upto);
        }
        drop(parts);
        drop(self.vbucket.store_mut().end_apply(batch));
        Ok(())
    }

    /// Checks that nothing is missing.
    fn check(&self, items: u32) {
        let loaded = self.storage.load(VB).expect("the file can be read");
        let loaded = loaded.expect("the file is there");
        assert_eq!(loaded.documents, u64::from(items) + 1);
        assert_eq!(loaded.high_seqno, self.vbucket.high_seqno());
        assert_eq!(self.vbucket.unapplied().items, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flush_takes_the_number_of_commits_of_its_limit() {
        let site = Site::new("disk", &std::env::temp_dir());
        let limited = |synced_bytes| CommitLimit {
            items: 10,
            synced_bytes,
            ..CommitLimit::LOGGED
        };
        for mode in [FlushMode::Direct, FlushMode::Logged] {
            for (limit, commits, syncs) in [
                (limited(1), 3, 6),
                (limited(1 << 20), 3, 2),
                (CommitLimit::OFF, 1, 2),
            ] {
                let (taken, measured) = run(&site, mode, limit, 25).expect("the disk works");
                assert_eq!(measured, commits, "{mode:?} {limit:?}");
                assert_eq!(taken.io.syncs, syncs, "{mode:?} {limit:?}");
            }
        }
    }
}
