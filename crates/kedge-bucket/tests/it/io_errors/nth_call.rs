//! A disk of which one call fails, the reads and look-ups included.

use crate::tools::TestSite;
use kedge_disk::{
    Disk, DiskCall, DiskError, DiskObserver, Fault, ObservedDisk, Operation, SimDisk,
};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const SEGMENT_HEADER_BYTES: u64 = 4_096;

/// The faults of all classes.
pub(super) const FAULTS: [Fault; 5] = [
    Fault::NoSpace,
    super::EDQUOT,
    super::EMFILE,
    super::EACCES,
    Fault::Io,
];

pub(super) fn is_full(fault: Fault) -> bool {
    matches!(fault, Fault::NoSpace | super::EDQUOT)
}

/// The call that failed.
#[derive(Clone, Debug)]
pub(super) struct FailedCall {
    pub(super) op: Operation,
    pub(super) path: PathBuf,
    /// The offset of a read or write.
    pub(super) offset: u64,
}

impl FailedCall {
    pub(super) fn is_sync(&self) -> bool {
        matches!(self.op, Operation::Sync | Operation::SyncDir)
    }

    pub(super) fn is_in_log(&self) -> bool {
        self.path.components().any(|it| it.as_os_str() == "log")
    }

    /// Returns whether the call is about the header of a log segment, behind which its records begin.
    pub(super) fn is_segment_header(&self) -> bool {
        self.is_in_log() && self.offset < SEGMENT_HEADER_BYTES
    }

    /// Returns whether the table has the call end the process while the bucket runs.
    pub(super) fn is_fatal(&self, fault: Fault) -> bool {
        let is_record = self.is_in_log() && !self.is_segment_header();
        let is_log_write = self.op == Operation::Write && is_record;
        self.is_sync() || (is_log_write && !is_full(fault))
    }
}

#[derive(Debug)]
pub(super) struct NthCall {
    disk: SimDisk,
    /// The number of calls before the one that fails, and the fault.
    next: Mutex<Option<(u64, Fault)>>,
    failed: Mutex<Option<FailedCall>>,
}

impl NthCall {
    /// Puts the observer between the site and its disk.
    pub(super) fn install(site: &mut TestSite, disk: &SimDisk) -> Arc<Self> {
        let calls = Arc::new(Self {
            disk: disk.clone(),
            next: Mutex::new(None),
            failed: Mutex::new(None),
        });
        site.disk = Arc::new(ObservedDisk::new(
            Arc::new(disk.clone()),
            Arc::clone(&calls),
        ));
        calls
    }

    pub(super) fn fail_after(&self, calls: u64, fault: Fault) {
        *self.next.lock().unwrap() = Some((calls, fault));
    }

    /// Returns the present path of an open file. That of the newest segment of the log may have the name from before it became one.
    fn present_path(&self, named: &Path) -> PathBuf {
        let dir = named.parent().unwrap();
        if !dir.ends_with("log") || self.disk.exists(named).unwrap() {
            return named.to_owned();
        }
        let names = self.disk.list(dir).unwrap();
        let newest = names.into_iter().rfind(|name| name.ends_with(".log"));
        dir.join(newest.unwrap())
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.lock().unwrap().is_some()
    }

    /// Disarms the fault. Returns the call that failed, if so many were made.
    pub(super) fn failed(&self) -> Option<FailedCall> {
        *self.next.lock().unwrap() = None;
        self.failed.lock().unwrap().clone()
    }
}

impl DiskObserver for NthCall {
    fn around<R>(
        &self,
        asked: &DiskCall<'_>,
        run: impl FnOnce() -> Result<R, DiskError>,
    ) -> Result<R, DiskError> {
        let fault = {
            let mut next = self.next.lock().unwrap();
            match &mut *next {
                None => None,
                Some((0, fault)) => {
                    let fault = *fault;
                    *next = None;
                    Some(fault)
                }
                Some((left, _)) => {
                    *left -= 1;
                    None
                }
            }
        };
        let Some(fault) = fault else {
            return run();
        };
        self.disk.fail_next(asked.operation, fault);
        let result = run();
        let Err(error) = &result else {
            // The simulated disk had nothing to do, so that nothing can fail: the next call does.
            self.disk.clear_faults();
            self.fail_after(0, fault);
            return result;
        };
        *self.failed.lock().unwrap() = Some(FailedCall {
            op: error.op,
            path: match asked.path {
                Some(_) => error.path.clone(),
                None => self.present_path(&error.path),
            },
            offset: error.offset.unwrap_or(0),
        });
        result
    }
}
