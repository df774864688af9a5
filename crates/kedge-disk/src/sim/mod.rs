//! A simulated disk in memory that loses power, tears writes, drops bytes and fills up, as determined by a seed.
//!
//! Model, which is harsher than real disks in places:
//! * A write is in the page cache until a sync. A crash leaves of each 512-byte sector any version since the last sync,
//!   independently of all others, and in one of eight cases a mixture of two.
//! * Creations, renames and removals are in the cache until the directory is synced. A crash keeps any subset of these
//!   changes, except those that depend on a lost one. Creating a directory is durable at once, as
//!   [`crate::Disk::create_dir_all`] promises.
//! * A failed sync writes some sectors and drops the others, while reads still return them, as from the page cache of a
//!   kernel.
//! * On a full disk, a write or preallocation that would grow a file fails after a part of it.
//!
//! Every mutating operation has a number, so a test can run a history, count the operations, and then repeat it with a
//! power loss at each number.

mod inode;
mod names;
mod rng;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::error::locked;
use crate::{DirLock, Disk, DiskError, File, Operation};

use inode::{Inode, SECTOR};
use names::{InodeId, NameTable};
pub use rng::{Rng, seed, seeds};

/// An injected fault of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The device reports an error. A write may be partly done, and a sync drops some of the data.
    Io,
    /// The disk is full. A write may be partly done.
    NoSpace,
    /// The system returns this error number. A write may be partly done.
    Os(i32),
    /// The power fails: this operation and all later ones fail until [`SimDisk::crash`].
    PowerLoss,
}

/// A handle to a simulated disk. Clones are handles to the same disk, and [`SimDisk::fork`] copies it.
#[derive(Debug, Clone)]
pub struct SimDisk {
    state: Arc<Mutex<SimState>>,
}

#[derive(Debug, Clone)]
struct SimState {
    names: NameTable,
    inodes: Vec<Inode>,
    rng: Rng,
    /// The number of crashes and process ends so far. Handles from before the last one are invalid.
    boot: u64,
    operations: u64,
    faults: BTreeMap<u64, Fault>,
    next_of: Vec<(Operation, Fault)>,
    every: BTreeMap<Operation, Fault>,
    power_lost: bool,
    capacity: Option<u64>,
    locks: BTreeSet<PathBuf>,
    unreadable: BTreeSet<(InodeId, u64)>,
}

/// The extent to which an operation runs.
enum SimStep {
    Whole,
    /// The operation fails, and decides itself how much of it is done.
    Failed(io::Error),
    /// The power fails during the operation: it is done in the cache and never acknowledged.
    PowerLoss,
}

impl SimDisk {
    /// Creates an empty disk of unlimited size. The seed determines the effects of failing writes and syncs.
    pub fn new(seed: u64) -> Self {
        let state = SimState {
            names: NameTable::default(),
            inodes: Vec::new(),
            rng: Rng::new(seed),
            boot: 0,
            operations: 0,
            faults: BTreeMap::new(),
            next_of: Vec::new(),
            every: BTreeMap::new(),
            power_lost: false,
            capacity: None,
            locks: BTreeSet::new(),
            unreadable: BTreeSet::new(),
        };
        SimDisk {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Returns an independent copy of the disk with its cached and durable contents. Open files stay with the original.
    pub fn fork(&self) -> SimDisk {
        SimDisk {
            state: Arc::new(Mutex::new(self.lock().clone())),
        }
    }

    /// Returns the number of mutating operations so far.
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// Injects a fault into operation `number`. The first operation of the disk has number 1.
    pub fn fail_operation(&self, number: u64, fault: Fault) {
        self.lock().faults.insert(number, fault);
    }

    /// Injects a fault into the operation that follows `others` further ones, even if other threads start operations
    /// concurrently.
    pub fn fail_after(&self, others: u64, fault: Fault) {
        let mut state = self.lock();
        let number = state.operations + 1 + others;
        state.faults.insert(number, fault);
    }

    /// Injects a fault into the next operation of this kind, which need not be a mutating one.
    pub fn fail_next(&self, op: Operation, fault: Fault) {
        self.lock().next_of.push((op, fault));
    }

    /// Injects a fault into every operation of this kind until [`SimDisk::clear_faults`]. Operations that are not
    /// mutating are included.
    pub fn fail_every(&self, op: Operation, fault: Fault) {
        self.lock().every.insert(op, fault);
    }

    /// Removes all injected faults that have not occurred yet.
    pub fn clear_faults(&self) {
        let mut state = self.lock();
        state.faults.clear();
        state.next_of.clear();
        state.every.clear();
    }

    /// Limits the sum of the lengths of all files, in bytes. `None` means no limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.lock().capacity = bytes;
    }

    /// Returns the sum of the lengths of all files, in bytes.
    pub fn used_bytes(&self) -> u64 {
        self.lock().used()
    }

    /// Simulates a power loss and a restart. `seed` determines the unsynced data that survives. Open files, locks and
    /// injected faults are gone.
    pub fn crash(&self, seed: u64) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let mut rng = Rng::new(seed);
        state.names.crash(&mut rng);
        for inode in &mut state.inodes {
            inode.crash(&mut rng);
        }
        state.restart();
    }

    /// Simulates the end of the process without a power loss: the cache stays, and open files and locks are gone.
    pub fn kill_process(&self) {
        self.lock().restart();
    }

    /// Flips the bits of `mask` in one byte, cached and durable, like a failing medium.
    ///
    /// # Panics
    /// Panics if the file or the byte does not exist.
    pub fn flip(&self, path: &Path, offset: u64, mask: u8) {
        let mut state = self.lock();
        let inode = state.names.get(path).expect("a file to damage");
        let offset = usize::try_from(offset).expect("an offset in memory");
        assert!(
            state.inodes[inode].flip(offset, mask),
            "no byte {offset} in {}",
            path.display()
        );
    }

    /// Makes all reads of the sector at `offset` fail until it is written again.
    ///
    /// # Panics
    /// Panics if the file does not exist.
    pub fn make_unreadable(&self, path: &Path, offset: u64) {
        let mut state = self.lock();
        let inode = state.names.get(path).expect("a file to damage");
        state.unreadable.insert((inode, offset / SECTOR as u64));
    }

    fn lock(&self) -> MutexGuard<'_, SimState> {
        self.state
            .lock()
            .expect("no operation panics with the lock held")
    }

    /// Runs a mutating operation with the fault that is injected into it.
    fn run(
        &self,
        op: Operation,
        path: &Path,
        work: impl FnOnce(&mut SimState, &SimStep) -> io::Result<()>,
    ) -> Result<(), DiskError> {
        let mut state = self.lock();
        let step = state
            .begin(op)
            .map_err(|source| DiskError::new(op, path, source))?;
        let done = work(&mut state, &step);
        let result = match step {
            SimStep::Whole => done,
            SimStep::Failed(source) => Err(source),
            SimStep::PowerLoss => Err(no_power()),
        };
        result.map_err(|source| DiskError::new(op, path, source))
    }

    /// Runs an operation that is not mutating.
    fn look<T>(
        &self,
        op: Operation,
        path: &Path,
        look: impl FnOnce(&SimState) -> io::Result<T>,
    ) -> Result<T, DiskError> {
        let mut state = self.lock();
        let result = if state.power_lost {
            Err(no_power())
        } else if let Some(fault) = state.take_fault(op) {
            Err(state.raise(fault))
        } else {
            look(&state)
        };
        result.map_err(|source| DiskError::new(op, path, source))
    }

    fn file(&self, path: &Path, inode: InodeId) -> Box<dyn File> {
        let boot = self.lock().boot;
        Box::new(SimFile {
            disk: self.clone(),
            path: path.to_owned(),
            inode,
            boot,
        })
    }
}

impl SimState {
    fn begin(&mut self, op: Operation) -> io::Result<SimStep> {
        if self.power_lost {
            return Err(no_power());
        }
        self.operations += 1;
        let mut fault = self.faults.remove(&self.operations);
        if fault.is_none() {
            fault = self.take_fault(op);
        }
        Ok(match fault {
            None => SimStep::Whole,
            Some(Fault::PowerLoss) => {
                self.power_lost = true;
                SimStep::PowerLoss
            }
            Some(fault) => SimStep::Failed(self.raise(fault)),
        })
    }

    /// Takes the fault injected into the next operation of this kind, or returns that of all operations of the kind.
    fn take_fault(&mut self, op: Operation) -> Option<Fault> {
        match self.next_of.iter().position(|(wanted, _)| *wanted == op) {
            Some(at) => Some(self.next_of.remove(at).1),
            None => self.every.get(&op).copied(),
        }
    }

    fn raise(&mut self, fault: Fault) -> io::Error {
        match fault {
            Fault::Io => io::Error::other("injected device error"),
            Fault::NoSpace => no_space(),
            Fault::Os(number) => io::Error::from_raw_os_error(number),
            Fault::PowerLoss => {
                self.power_lost = true;
                no_power()
            }
        }
    }

    fn restart(&mut self) {
        self.boot += 1;
        self.power_lost = false;
        self.faults.clear();
        self.next_of.clear();
        self.every.clear();
        self.locks.clear();
    }

    fn used(&self) -> u64 {
        self.names
            .files()
            .map(|(_, inode)| self.inodes[inode].len())
            .sum()
    }

    /// Returns the length up to which a file of `now` bytes may grow towards `wanted`.
    fn room(&self, now: u64, wanted: u64) -> u64 {
        match self.capacity {
            Some(capacity) if wanted > now => {
                wanted.min(now + capacity.saturating_sub(self.used()))
            }
            _ => wanted,
        }
    }

    fn write(&mut self, inode: InodeId, step: &SimStep, buf: &[u8], offset: u64) -> io::Result<()> {
        let end = offset + buf.len() as u64;
        let room = self.room(self.inodes[inode].len(), end);
        let mut fits = buf.len().min(to_usize(room.saturating_sub(offset)));
        if matches!(step, SimStep::Failed(_)) {
            fits = to_usize(self.rng.below(fits as u64 + 1));
        }
        for sector in offset / SECTOR as u64..(offset + fits as u64).div_ceil(SECTOR as u64) {
            self.unreadable.remove(&(inode, sector));
        }
        if fits > 0 {
            self.inodes[inode].write(&buf[..fits], to_usize(offset));
        }
        if fits < buf.len() {
            Err(no_space())
        } else {
            Ok(())
        }
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path) -> Result<Box<dyn File>, DiskError> {
        let inode = self.look(Operation::Open, path, |state| {
            state.names.get(path).ok_or_else(not_found)
        })?;
        Ok(self.file(path, inode))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn File>, DiskError> {
        let mut made = 0;
        self.run(Operation::Create, path, |state, step| {
            if !path.parent().is_some_and(|dir| state.names.has_dir(dir)) {
                return Err(not_found());
            }
            if matches!(step, SimStep::Failed(_)) {
                return Ok(());
            }
            if let Some(inode) = state.names.get(path) {
                made = inode;
                state.inodes[inode].set_len(0);
            } else {
                made = state.inodes.len();
                state.inodes.push(Inode::default());
                state.names.link(path, made);
            }
            Ok(())
        })?;
        Ok(self.file(path, made))
    }

    fn remove(&self, path: &Path) -> Result<(), DiskError> {
        self.run(Operation::Remove, path, |state, step| {
            if matches!(step, SimStep::Failed(_)) || state.names.unlink(path) {
                return Ok(());
            }
            Err(not_found())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.run(Operation::Rename, from, |state, step| {
            if matches!(step, SimStep::Failed(_)) || state.names.rename(from, to) {
                return Ok(());
            }
            Err(not_found())
        })
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>, DiskError> {
        self.look(Operation::List, dir, |state| {
            if !state.names.has_dir(dir) {
                return Err(not_found());
            }
            let files = state.names.files().map(|(path, _)| path);
            let here = files.chain(state.names.dirs());
            let here = here.filter(|path| path.parent() == Some(dir));
            let names = here.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
            let mut names: Vec<String> = names.collect();
            names.sort_unstable();
            Ok(names)
        })
    }

    fn create_dir_all(&self, dir: &Path) -> Result<(), DiskError> {
        if self.exists(dir)? {
            return Ok(());
        }
        self.run(Operation::CreateDir, dir, |state, step| {
            if matches!(step, SimStep::Whole) {
                state.names.add_dirs(dir);
            }
            Ok(())
        })
    }

    fn remove_dir_all(&self, dir: &Path) -> Result<(), DiskError> {
        let inside: Vec<PathBuf> = self.look(Operation::Remove, dir, |state| {
            let files = state.names.files().map(|(path, _)| path.clone());
            Ok(files.filter(|path| path.starts_with(dir)).collect())
        })?;
        for path in inside {
            self.remove(&path)?;
        }
        self.run(Operation::Remove, dir, |state, step| {
            if matches!(step, SimStep::Whole) {
                state.names.remove_dir(dir);
            }
            Ok(())
        })
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), DiskError> {
        self.run(Operation::SyncDir, dir, |state, step| {
            if !state.names.has_dir(dir) {
                return Err(not_found());
            }
            if matches!(step, SimStep::Whole) {
                state.names.sync_dir(dir);
            }
            Ok(())
        })
    }

    fn exists(&self, path: &Path) -> Result<bool, DiskError> {
        self.look(Operation::Stat, path, |state| {
            Ok(state.names.get(path).is_some() || state.names.has_dir(path))
        })
    }

    fn len(&self, path: &Path) -> Result<u64, DiskError> {
        self.look(Operation::Stat, path, |state| {
            let inode = state.names.get(path).ok_or_else(not_found)?;
            Ok(state.inodes[inode].len())
        })
    }

    fn lock_dir(&self, dir: &Path) -> Result<DirLock, DiskError> {
        let mut state = self.lock();
        if state.power_lost {
            return Err(DiskError::new(Operation::Lock, dir, no_power()));
        }
        if !state.locks.insert(dir.to_owned()) {
            return Err(locked(&dir.join("LOCK")));
        }
        let boot = state.boot;
        Ok(DirLock::new(SimLock {
            disk: self.clone(),
            dir: dir.to_owned(),
            boot,
        }))
    }

    fn free_bytes(&self, dir: &Path) -> Result<u64, DiskError> {
        self.look(Operation::Stat, dir, |state| {
            Ok(state
                .capacity
                .map_or(u64::MAX, |capacity| capacity.saturating_sub(state.used())))
        })
    }
}

/// The lock of a simulated directory.
struct SimLock {
    disk: SimDisk,
    dir: PathBuf,
    boot: u64,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        // The mutex may be poisoned while a test panics. No test needs the lock then.
        if let Ok(mut state) = self.disk.state.lock()
            && state.boot == self.boot
        {
            state.locks.remove(&self.dir);
        }
    }
}

/// An open file of a simulated disk.
#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    path: PathBuf,
    inode: InodeId,
    boot: u64,
}

impl SimFile {
    fn run(
        &self,
        op: Operation,
        work: impl FnOnce(&mut SimState, &SimStep) -> io::Result<()>,
    ) -> Result<(), DiskError> {
        if self.disk.lock().boot != self.boot {
            return Err(DiskError::new(op, &self.path, stale()));
        }
        self.disk.run(op, &self.path, work)
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.run(Operation::Sync, |state, step| {
            match step {
                SimStep::Whole => state.inodes[self.inode].sync(),
                SimStep::Failed(_) => state.inodes[self.inode].fail_sync(&mut state.rng),
                SimStep::PowerLoss => {}
            }
            Ok(())
        })
    }
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DiskError> {
        let mut state = self.disk.lock();
        let error = |source| DiskError::at(Operation::Read, &self.path, offset, source);
        if state.boot != self.boot || state.power_lost {
            return Err(error(stale()));
        }
        if let Some(fault) = state.take_fault(Operation::Read) {
            return Err(error(state.raise(fault)));
        }
        let sectors = offset / SECTOR as u64
            ..(offset.saturating_add(buf.len() as u64)).div_ceil(SECTOR as u64);
        let bad = (self.inode, sectors.start)..(self.inode, sectors.end);
        if state.unreadable.range(bad).next().is_some() {
            return Err(error(io::Error::other("injected medium error")));
        }
        let bytes = state.inodes[self.inode]
            .read(offset, buf.len())
            .ok_or_else(|| error(io::ErrorKind::UnexpectedEof.into()))?;
        buf.copy_from_slice(bytes);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), DiskError> {
        self.run(Operation::Write, |state, step| {
            state.write(self.inode, step, buf, offset)
        })
        .map_err(|error| DiskError {
            offset: Some(offset),
            ..error
        })
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        self.sync()
    }

    fn sync_all(&self) -> Result<(), DiskError> {
        self.sync()
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.run(Operation::SetLen, |state, step| {
            if !matches!(step, SimStep::Failed(_)) {
                state.inodes[self.inode].set_len(to_usize(len));
            }
            Ok(())
        })
    }

    fn allocate(&self, len: u64) -> Result<(), DiskError> {
        self.run(Operation::Allocate, |state, step| {
            if state.room(state.inodes[self.inode].len(), len) < len {
                return Err(no_space());
            }
            if !matches!(step, SimStep::Failed(_)) {
                state.inodes[self.inode].allocate(to_usize(len));
            }
            Ok(())
        })
    }

    fn len(&self) -> Result<u64, DiskError> {
        self.disk.look(Operation::Stat, &self.path, |state| {
            Ok(state.inodes[self.inode].len())
        })
    }
}

fn to_usize(n: u64) -> usize {
    usize::try_from(n).expect("a simulated file fits in memory")
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

fn no_space() -> io::Error {
    io::ErrorKind::StorageFull.into()
}

fn no_power() -> io::Error {
    io::Error::other("the simulated machine has lost power")
}

fn stale() -> io::Error {
    io::Error::other("this handle is from before a simulated restart")
}
