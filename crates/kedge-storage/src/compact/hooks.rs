//! What the caller of a compaction hears and decides, and how the rules of purging are put in between.

use std::ops::ControlFlow;

use kedge_couchstore::compact::purge::{Events, Policy, Purge, Report};
use kedge_couchstore::compact::{Hooks, LocalPatch, Progress, Verdict};
use kedge_couchstore::kv::RevMeta;
use kedge_couchstore::{Entry, Error as FileError, OldVersion, Snapshot};
use kedge_types::{Cas, Seqno};

use super::CompactionProgress;
use crate::maintenance::{Maintenance, Stopping};

/// What a compaction calls while it runs. It holds no lock of the storage then, but where a method says so.
pub trait CompactHooks {
    /// A document has expired. It stays in the file: the caller deletes it through the vBucket, if it is still the
    /// same, and the tombstone applies like any other.
    fn expired(&mut self, document: &Expired<'_>);

    /// So many bytes are about to be read and written. May pause with [`crate::Storage::pause`]. Not called while the
    /// vBucket's commits wait for the compaction.
    fn bytes(&mut self, bytes: u64);

    /// Whether to end without a result. Asked every few hundred KiB, also while the vBucket's commits wait.
    fn stop(&mut self) -> bool {
        false
    }

    /// Nanoseconds of a clock that never goes back.
    fn now_ns(&mut self) -> u64;
}

/// A document that has expired, as it was when the compaction saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expired<'a> {
    /// Its stored key: collection prefix and logical key.
    pub key: &'a [u8],
    /// Its seqno.
    pub seqno: Seqno,
    /// Its CAS.
    pub cas: Cas,
    /// Its value, if that has extended attributes, some of which a tombstone may keep.
    pub value: Option<&'a [u8]>,
}

/// Who may ask a compaction to end, beside its hooks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stop<'a> {
    pub(super) maintenance: &'a Maintenance,
    pub(super) stopping: &'a Stopping,
}

impl Stop<'_> {
    pub(super) fn is_set(&self) -> bool {
        self.maintenance.is_waited_for() || self.stopping.is_set()
    }
}

/// The rules of purging, with an eye on whether to go on.
pub(super) struct Watch<'a> {
    purge: Purge<Relay<'a>>,
    stop: Stop<'a>,
}

/// Passes on what purging says.
pub(super) struct Relay<'a> {
    pub(super) hooks: &'a mut dyn CompactHooks,
    progress: &'a CompactionProgress,
    stop: Stop<'a>,
    /// Whether it is slowed down.
    pub(super) is_paced: bool,
}

impl<'a> Watch<'a> {
    /// For a compaction of this file.
    pub(super) fn new(
        source: &Snapshot,
        policy: Policy,
        hooks: &'a mut dyn CompactHooks,
        progress: &'a CompactionProgress,
        stop: Stop<'a>,
    ) -> Result<Self, FileError> {
        let relay = Relay {
            hooks,
            progress,
            stop,
            is_paced: true,
        };
        Ok(Watch {
            purge: Purge::new(source, policy, relay)?,
            stop,
        })
    }

    pub(super) fn relay(&mut self) -> &mut Relay<'a> {
        self.purge.events()
    }

    pub(super) fn report(&self) -> &Report {
        self.purge.report()
    }

    /// An error if the compaction is to end.
    pub(super) fn check(&mut self) -> Result<(), FileError> {
        match self.stop.is_set() || self.relay().hooks.stop() {
            true => Err(FileError::Stopped),
            false => Ok(()),
        }
    }
}

impl Events for Relay<'_> {
    fn expired(&mut self, entry: &Entry, body: Option<&[u8]>) {
        // It was decoded once to find out that it has expired.
        if let Ok(meta) = RevMeta::decode(entry.rev_meta()) {
            self.hooks.expired(&Expired {
                key: entry.key(),
                seqno: entry.seqno(),
                cas: meta.cas,
                value: body,
            });
        }
    }

    fn pace(&mut self, bytes: u64, progress: &Progress) -> ControlFlow<()> {
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

impl Hooks for Watch<'_> {
    fn filter(&mut self, entry: &Entry, body: Option<&[u8]>) -> Verdict {
        if self.stop.is_set() {
            return Verdict::Stop;
        }
        self.purge.filter(entry, body)
    }

    fn copied(&mut self, entry: &Entry, disk_bytes: u32, replaced: Option<OldVersion<'_>>) {
        self.purge.copied(entry, disk_bytes, replaced);
    }

    fn locals(&mut self, locals: &mut LocalPatch) -> Result<(), FileError> {
        self.purge.locals(locals)
    }

    fn pace(&mut self, bytes: u64, progress: &Progress) -> ControlFlow<()> {
        self.purge.pace(bytes, progress)
    }
}
