//! A file system for tests, over another directory, whose reads, writes and syncs can be made slow, hang or fail.
//!
//! Processes use it like any other file system: it is one of FUSE, Linux's file systems in user space, and the threads of
//! this crate serve it. The kernel ends all its calls when the process of the test ends, however that happens, so a hung
//! file system never outlives a test. [`in_namespaces`] runs a test where it may mount file systems without being root.
//!
//! ```
//! use std::time::Duration;
//!
//! use kedge_faulty_disk::{Call, Effect, Fault, FaultGuard, FaultyDisk};
//!
//! /// Makes each sync take a second longer, until the guard is dropped.
//! fn slow_down(disk: &FaultyDisk) -> FaultGuard {
//!     disk.fault(Fault {
//!         calls: &[Call::Sync],
//!         concerns: |path| !path.ends_with("server.log"),
//!         effect: Effect::Delay(Duration::from_secs(1)),
//!     })
//! }
//! ```
//!
//! The protocol is that of `linux/fuse.h`, version 7.31.

mod faults;
mod files;
mod namespaces;
mod nodes;
mod replies;
mod requests;
mod serve;

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;

pub use self::faults::{Call, Effect, Fault, FaultGuard};
pub use self::namespaces::in_namespaces;
use self::serve::FileSystem;

/// A mounted file system. It stays mounted until the namespace of mounts or the process ends.
#[derive(Debug)]
pub struct FaultyDisk {
    files: Arc<FileSystem>,
}

impl FaultyDisk {
    /// Mounts the file system on the directory `at`, over the directory `below`.
    ///
    /// # Panics
    /// When that is refused.
    #[must_use]
    pub fn mount(below: &Path, at: &Path) -> Self {
        let device = File::options().read(true).write(true).open("/dev/fuse");
        let device = device.expect("/dev/fuse can be opened");
        let handle = device.try_clone().expect("a handle");
        let files = Arc::new(FileSystem::new(below, device));
        let mounted = Command::new("mount")
            .args(["-i", "-t", "fuse", "-o"])
            .arg("fd=0,rootmode=40000,user_id=0,group_id=0")
            .arg("faulty-disk")
            .arg(at)
            .stdin(handle)
            .output()
            .expect("mount is installed");
        let why = String::from_utf8_lossy(&mounted.stderr);
        assert!(mounted.status.success(), "{}: {why}", at.display());
        // Nothing can be read from the device before.
        let served = files.clone();
        let serving = thread::Builder::new().name("faulty-disk".to_owned());
        let _ = serving
            .spawn(move || serve::run(&served))
            .expect("a thread");
        Self { files }
    }

    /// Makes a fault, in place of the one before, until the guard is dropped.
    pub fn fault(&self, fault: Fault) -> FaultGuard {
        self.files.faults.set(fault)
    }

    /// Returns the number of calls that were made slow, hung or failed so far.
    #[must_use]
    pub fn faulty_calls(&self) -> u64 {
        self.files.faults.count()
    }
}
