//! Maintenance of files: compaction, rollback, import.

mod compact;
mod compact_crash;
mod compact_threads;
mod import;
mod import_crash;
mod leaks;
mod model;
mod rollback;

use std::path::PathBuf;

use kedge_storage::{CompactHooks, CompactRequest, ExpiredDocument, FileRecordKind, Storage};
use kedge_types::Seqno;

pub(crate) use crate::support::names;
use crate::support::{Contents, VB};

/// The time of all tombstones of the tests.
pub(crate) const DELETED: u32 = 1_700_000_000;

/// A compaction that purges nothing.
pub(crate) fn keep_all() -> CompactRequest {
    CompactRequest {
        purge_before_unix_secs: 0,
        purge_before_seqno: None,
        drop_deletes: false,
        now_unix_secs: DELETED,
        sync_each_bytes: None,
    }
}

/// A compaction that purges everything that it may.
pub(crate) fn purge() -> CompactRequest {
    CompactRequest {
        purge_before_unix_secs: DELETED + 1,
        ..keep_all()
    }
}

/// Callbacks that call closures.
pub(crate) struct Hooks<'a> {
    pub(crate) on_bytes: Box<dyn FnMut(u64) + 'a>,
    pub(crate) on_stop: Box<dyn FnMut() -> bool + 'a>,
    pub(crate) expired: Vec<(Vec<u8>, Seqno, Option<Vec<u8>>)>,
    now_ns: u64,
}

impl Default for Hooks<'_> {
    fn default() -> Self {
        Hooks {
            on_bytes: Box::new(|_| {}),
            on_stop: Box::new(|| false),
            expired: Vec::new(),
            now_ns: 0,
        }
    }
}

impl<'a> Hooks<'a> {
    pub(crate) fn on_bytes(on_bytes: impl FnMut(u64) + 'a) -> Self {
        Hooks {
            on_bytes: Box::new(on_bytes),
            ..Hooks::default()
        }
    }

    pub(crate) fn on_stop(on_stop: impl FnMut() -> bool + 'a) -> Self {
        Hooks {
            on_stop: Box::new(on_stop),
            ..Hooks::default()
        }
    }
}

impl CompactHooks for Hooks<'_> {
    fn expired(&mut self, document: &ExpiredDocument<'_>) {
        let value = document.value.map(<[u8]>::to_vec);
        self.expired
            .push((document.key.to_vec(), document.seqno, value));
    }

    fn bytes(&mut self, bytes: u64) {
        (self.on_bytes)(bytes);
    }

    fn stop(&mut self) -> bool {
        (self.on_stop)()
    }

    fn now_ns(&mut self) -> u64 {
        self.now_ns += 7;
        self.now_ns
    }
}

/// Returns the contents that a compaction leaves of a file with these contents.
pub(crate) fn purged(contents: &Contents, request: &CompactRequest, completed: u64) -> Contents {
    let high = high_seqno(contents);
    let mut left = contents.clone();
    left.retain(|_, kept| {
        let seqno = kept.meta.seqno;
        match kept.kind {
            FileRecordKind::Prepare => seqno > Seqno(completed),
            _ if kept.meta.deleted.is_none() || seqno == high => true,
            _ => {
                let is_old = DELETED < request.purge_before_unix_secs
                    && request.purge_before_seqno.is_none_or(|last| seqno <= last);
                !is_old && !request.drop_deletes
            }
        }
    });
    left
}

pub(crate) fn high_seqno(contents: &Contents) -> Seqno {
    let seqnos = contents.values().map(|kept| kept.meta.seqno);
    seqnos.max().unwrap_or(Seqno(0))
}

/// Returns the file of the vBucket that most tests use.
pub(crate) fn file(storage: &Storage) -> PathBuf {
    let figures = storage.file_figures(VB).expect("figures").expect("a file");
    storage
        .dir()
        .join(format!("{VB}.couch.{}", figures.revision.0))
}
