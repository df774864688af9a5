//! The embedded store: a file in a directory that the processes of one machine share, for development and tests.
//!
//! Invariants:
//! * The state is changed only under the directory's lock, by replacing the file. A process that is killed at any point
//!   leaves the old state or the new one, and the system releases its lock.
//! * A call returns a revision only after it is durable, whoever wrote it: a process killed between the renaming of the
//!   file and the sync of the directory has not made the sync.

mod file;
mod state;
mod watch;

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kedge_disk::{DirLock, Disk, DiskError, Operation, PosixDisk, read_file, replace_file};

use crate::position::Seen;
use crate::{
    CoordinationError, Coordinator, Revision, Snapshot, StorePosition, Transaction, Watch,
};
use file::Header;
use state::State;
use watch::EmbeddedWatch;

/// The name of the file.
const FILE: &str = "coordination";
/// The time between two looks of a watch at the file.
pub const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The time between two attempts to lock the directory.
const LOCK_INTERVAL: Duration = Duration::from_millis(1);

/// The parameters of a store that are not its directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmbeddedOptions {
    /// The newest position that an earlier handle has seen.
    pub seen: Option<StorePosition>,
}

/// A coordination store in a directory.
#[derive(Clone, Debug)]
pub struct Embedded {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    seen: Seen,
    /// The newest revision that is durable for certain.
    durable: AtomicU64,
    /// Files are created so that nobody else can read them.
    is_private: bool,
}

/// The result of a step under the lock: whether it changed the state, and its answer.
type Step<T> = Result<(bool, T), CoordinationError>;

impl Embedded {
    /// Opens the store in a directory of the operating system, or creates both. Nobody else can read what it creates.
    ///
    /// # Errors
    /// `Disk`, or `Damaged`.
    pub fn open(dir: &Path, options: EmbeddedOptions) -> Result<Self, CoordinationError> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder
            .create(dir)
            .map_err(|source| DiskError::new(Operation::CreateDir, dir, source))?;
        let shared = Shared::new(Arc::new(PosixDisk), dir, options, true);
        shared.precreate(&dir.join("LOCK"))?;
        Ok(Embedded {
            shared: Arc::new(shared),
        })
    }

    /// Opens the store on another disk, as a simulated one.
    ///
    /// # Errors
    /// Those of [`Embedded::open`].
    pub fn open_on(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: EmbeddedOptions,
    ) -> Result<Self, CoordinationError> {
        disk.create_dir_all(dir)?;
        let shared = Shared::new(disk, dir, options, false);
        Ok(Embedded {
            shared: Arc::new(shared),
        })
    }
}

impl Coordinator for Embedded {
    fn read(&self, timeout: Duration) -> Result<Snapshot, CoordinationError> {
        let entries = |state: &mut State| Ok((false, state.entries()));
        let (position, entries) = self.shared.step(timeout, entries)?;
        Ok(Snapshot { position, entries })
    }

    fn transact(
        &self,
        transaction: &Transaction,
        timeout: Duration,
    ) -> Result<Revision, CoordinationError> {
        transaction.check()?;
        let step = |state: &mut State| {
            let before = state.revision;
            let revision = state.transact(transaction)?;
            Ok((revision.0 != before, revision))
        };
        let (_, revision) = self.shared.step(timeout, step)?;
        Ok(revision)
    }

    fn watch(&self, after: Revision) -> Result<Box<dyn Watch>, CoordinationError> {
        self.shared.seen.newest()?;
        let watch = EmbeddedWatch::new(self.shared.clone(), after);
        Ok(Box::new(watch))
    }

    fn seen(&self) -> Option<StorePosition> {
        self.shared.seen.last()
    }
}

impl Shared {
    fn new(disk: Arc<dyn Disk>, dir: &Path, options: EmbeddedOptions, is_private: bool) -> Self {
        Shared {
            disk,
            dir: dir.to_owned(),
            seen: Seen::new(options.seen),
            durable: AtomicU64::new(0),
            is_private,
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.join(FILE)
    }

    /// Runs a step under the lock, with the present state, and makes what has changed durable.
    fn step<T>(
        &self,
        timeout: Duration,
        step: impl FnOnce(&mut State) -> Step<T>,
    ) -> Result<(StorePosition, T), CoordinationError> {
        let before = self.seen.newest()?;
        let _lock = self.lock(timeout)?;
        let (store, mut state) = self.load()?;
        let found = |state: &State| StorePosition {
            store,
            revision: Revision(state.revision),
        };
        self.seen.observe(before, found(&state))?;
        let done = step(&mut state);
        if matches!(done, Ok((true, _))) {
            self.save(store, &state)?;
        }
        let position = found(&state);
        self.seen.observe(before, position)?;
        done.map(|(_, answer)| (position, answer))
    }

    fn lock(&self, timeout: Duration) -> Result<DirLock, CoordinationError> {
        let began = Instant::now();
        loop {
            match self.disk.lock_dir(&self.dir) {
                Ok(lock) => return Ok(lock),
                Err(error) if !error.is_locked() => return Err(error.into()),
                Err(error) if began.elapsed() >= timeout => {
                    return Err(CoordinationError::Unreachable(error.to_string()));
                }
                Err(_) => thread::sleep(LOCK_INTERVAL),
            }
        }
    }

    /// Reads the state, or creates that of a new store.
    fn load(&self) -> Result<(u64, State), CoordinationError> {
        let bytes = match read_file(&*self.disk, &self.path()) {
            Ok(bytes) => bytes,
            Err(error) if error.is_not_found() => {
                let state = State::new();
                let store = random()?;
                self.save(store, &state)?;
                return Ok((store, state));
            }
            Err(error) => return Err(error.into()),
        };
        let (header, state) = file::decode(&bytes)?;
        if header.revision > self.durable.load(Ordering::Acquire) {
            // Its writer may have been killed before its own sync.
            self.disk.sync_dir(&self.dir)?;
            self.durable.fetch_max(header.revision, Ordering::AcqRel);
        }
        Ok((header.store, state))
    }

    fn save(&self, store: u64, state: &State) -> Result<(), CoordinationError> {
        let bytes = file::encode(store, state)?;
        let path = self.path();
        if self.is_private {
            self.precreate(&path.with_extension("tmp"))?;
        }
        match replace_file(&*self.disk, &path, &bytes) {
            Ok(()) => {
                self.durable.fetch_max(state.revision, Ordering::AcqRel);
                Ok(())
            }
            // The file has its new name, which a power failure may take back.
            Err(error) if error.op == Operation::SyncDir => {
                Err(CoordinationError::OutcomeUnknown(error.to_string()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a file that only its owner can read, before the disk opens it.
    fn precreate(&self, path: &Path) -> Result<(), DiskError> {
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let created = options.open(path).map(|_| ());
        created.map_err(|source| DiskError::new(Operation::Create, path, source))
    }

    /// Reads the first line of the file, without the lock; `None` if there is no file yet.
    fn header(&self) -> Result<Option<Header>, CoordinationError> {
        let file = match self.disk.open(&self.path()) {
            Ok(file) => file,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut line = [0; file::HEADER_BYTES];
        file.read_at(&mut line, 0)?;
        file::decode_header(&line).map(Some)
    }
}

fn random() -> Result<u64, CoordinationError> {
    getrandom::u64()
        .map_err(|error| CoordinationError::Refused(format!("no random number: {error}")))
}
