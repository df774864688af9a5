//! The present fault, and the calls that it concerns.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

/// A call of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A read that the kernel's memory does not answer.
    Read,
    /// A write.
    Write,
    /// A sync of a file or of a directory.
    Sync,
}

impl Call {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::Read, Self::Write, Self::Sync];
}

/// The effect of a fault.
#[derive(Clone, Copy, Debug)]
pub enum Effect {
    /// Calls take this time longer.
    Delay(Duration),
    /// Calls return when the fault ends.
    Hang,
    /// Calls fail with that error.
    Fail(Errno),
}

/// A fault of the disk.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// The calls.
    pub calls: &'static [Call],
    /// Returns whether the fault concerns the file with that path within the file system.
    pub concerns: fn(&Path) -> bool,
    /// The effect.
    pub effect: Effect,
}

#[derive(Debug, Default)]
struct State {
    fault: Option<Fault>,
    /// Grows with each fault.
    number: u64,
}

/// The present fault.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    state: Arc<(Mutex<State>, Condvar)>,
    count: AtomicU64,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A fault that ends when this is dropped.
#[must_use]
#[derive(Debug)]
pub struct FaultGuard {
    state: Arc<(Mutex<State>, Condvar)>,
    number: u64,
}

impl Drop for FaultGuard {
    fn drop(&mut self) {
        let mut state = lock(&self.state.0);
        if state.number == self.number {
            state.fault = None;
            state.number += 1;
        }
        drop(state);
        self.state.1.notify_all();
    }
}

/// The fault of one call.
#[derive(Debug)]
pub(crate) struct CallFault {
    effect: Effect,
    number: u64,
}

impl Faults {
    pub(crate) fn set(&self, fault: Fault) -> FaultGuard {
        let mut state = lock(&self.state.0);
        state.fault = Some(fault);
        state.number += 1;
        let number = state.number;
        drop(state);
        self.state.1.notify_all();
        FaultGuard {
            state: self.state.clone(),
            number,
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the fault of a call; `None` if there is none.
    pub(crate) fn of_call(&self, call: Call, path: &Path) -> Option<CallFault> {
        let state = lock(&self.state.0);
        let fault = state.fault?;
        let is_concerned = fault.calls.contains(&call) && (fault.concerns)(path);
        is_concerned.then(|| {
            self.count.fetch_add(1, Ordering::Relaxed);
            CallFault {
                effect: fault.effect,
                number: state.number,
            }
        })
    }

    /// Waits for as long as a fault makes a call take longer.
    ///
    /// # Errors
    /// The error with which the call has to fail.
    pub(crate) fn wait(&self, fault: &CallFault) -> Result<(), Errno> {
        let time = match fault.effect {
            Effect::Fail(errno) => return Err(errno),
            Effect::Delay(time) => Some(time),
            Effect::Hang => None,
        };
        let (state, changed) = &*self.state;
        let goes_on = |state: &mut State| state.number == fault.number;
        match time {
            Some(time) => drop(changed.wait_timeout_while(lock(state), time, goes_on)),
            None => drop(changed.wait_while(lock(state), goes_on)),
        }
        Ok(())
    }
}
