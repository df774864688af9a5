//! The callbacks of a compaction, and their connection with the purge rules.

use std::ops::ControlFlow;

use kedge_couchstore::compact::purge::{Purge, PurgeEvents, PurgePolicy, PurgeReport};
use kedge_couchstore::compact::{CompactionHooks, CopyProgress, FilterDecision, LocalPatch};
use kedge_couchstore::kv::RevMeta;
use kedge_couchstore::{Entry, Error as FileError, OldVersion, Snapshot};
use kedge_types::{Cas, Seqno};

use super::SharedProgress;
use crate::maintenance::{MaintenanceLock, StopFlag};

/// The callbacks of a running compaction. The storage holds no lock during them, unless a method documents one.
pub trait CompactHooks {
    /// Called for an expired document. It stays in the file: the caller deletes it through the vBucket if it is
    /// unchanged, and the tombstone is applied like any other.
    fn expired(&mut self, document: &ExpiredDocument<'_>);

    /// Called before `bytes` bytes are read and written. It may pause with [`crate::Storage::pause`]. It is not called
    /// while commits of the vBucket wait for the compaction.
    fn bytes(&mut self, bytes: u64);

    /// Returns `true` to cancel the compaction. Called every few hundred KiB, also while commits of the vBucket wait.
    fn stop(&mut self) -> bool {
        false
    }

    /// Returns the time of a monotonic clock in ns.
    fn now_ns(&mut self) -> u64;
}

/// An expired document, as the compaction found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpiredDocument<'a> {
    /// The stored key: collection prefix and logical key.
    pub key: &'a [u8],
    /// The seqno.
    pub seqno: Seqno,
    /// The CAS.
    pub cas: Cas,
    /// The value, if it has extended attributes, some of which a tombstone may keep.
    pub value: Option<&'a [u8]>,
}

/// The sources of a cancellation, in addition to the callbacks.
#[derive(Debug, Clone, Copy)]
pub(super) struct CancelSources<'a> {
    pub(super) maintenance: &'a MaintenanceLock,
    pub(super) stopping: &'a StopFlag,
}

impl CancelSources<'_> {
    pub(super) fn is_set(&self) -> bool {
        self.maintenance.must_end() || self.stopping.is_set()
    }
}

/// The purge rules, with a check for cancellation at each entry.
pub(super) struct CancellablePurge<'a> {
    purge: Purge<HookRelay<'a>>,
    stop: CancelSources<'a>,
}

/// Passes the events of the purge rules on to the callbacks.
pub(super) struct HookRelay<'a> {
    pub(super) hooks: &'a mut dyn CompactHooks,
    progress: &'a SharedProgress,
    stop: CancelSources<'a>,
    /// `true` while the compaction is throttled.
    pub(super) is_paced: bool,
}

impl<'a> CancellablePurge<'a> {
    /// Creates the callbacks for the compaction of a file.
    pub(super) fn new(
        source: &Snapshot,
        policy: PurgePolicy,
        hooks: &'a mut dyn CompactHooks,
        progress: &'a SharedProgress,
        stop: CancelSources<'a>,
    ) -> Result<Self, FileError> {
        let relay = HookRelay {
            hooks,
            progress,
            stop,
            is_paced: true,
        };
        Ok(CancellablePurge {
            purge: Purge::new(source, policy, relay)?,
            stop,
        })
    }

    pub(super) fn relay(&mut self) -> &mut HookRelay<'a> {
        self.purge.events()
    }

    pub(super) fn report(&self) -> &PurgeReport {
        self.purge.report()
    }

    /// Returns an error if the compaction has to end.
    pub(super) fn check(&mut self) -> Result<(), FileError> {
        match self.stop.is_set() || self.relay().hooks.stop() {
            true => Err(FileError::Stopped),
            false => Ok(()),
        }
    }
}

impl PurgeEvents for HookRelay<'_> {
    fn expired(&mut self, entry: &Entry, body: Option<&[u8]>) {
        // The purge rules have decoded it before, to find out that it has expired.
        if let Ok(meta) = RevMeta::decode(entry.rev_meta()) {
            self.hooks.expired(&ExpiredDocument {
                key: entry.key(),
                seqno: entry.seqno(),
                cas: meta.cas,
                value: body,
            });
        }
    }

    fn pace(&mut self, bytes: u64, progress: &CopyProgress) -> ControlFlow<()> {
        self.progress.set(progress);
        if self.is_paced {
            self.hooks.bytes(bytes);
        }
        match self.stop.is_set() || self.hooks.stop() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

impl CompactionHooks for CancellablePurge<'_> {
    fn filter(&mut self, entry: &Entry, body: Option<&[u8]>) -> FilterDecision {
        if self.stop.is_set() {
            return FilterDecision::Stop;
        }
        self.purge.filter(entry, body)
    }

    fn copied(&mut self, entry: &Entry, disk_bytes: u32, replaced: Option<OldVersion<'_>>) {
        self.purge.copied(entry, disk_bytes, replaced);
    }

    fn locals(&mut self, locals: &mut LocalPatch) -> Result<(), FileError> {
        self.purge.locals(locals)
    }

    fn pace(&mut self, bytes: u64, progress: &CopyProgress) -> ControlFlow<()> {
        self.purge.pace(bytes, progress)
    }
}
