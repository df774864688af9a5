//! A condition variable for mutexes with a rank.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, WaitTimeoutResult};

use crate::{Rank, RankedMutexGuard};

/// A condition variable. A thread that waits releases the lock of the guard, and has it again when the wait ends; for the check
/// of ranks it holds the lock all the time.
#[derive(Debug, Default)]
pub struct RankedCondvar(Condvar);

impl RankedCondvar {
    /// A condition variable for which nobody waits.
    #[must_use]
    pub const fn new() -> Self {
        Self(Condvar::new())
    }

    /// Wakes one waiter, and returns whether there was one.
    pub fn notify_one(&self) -> bool {
        self.0.notify_one()
    }

    /// Wakes all waiters, and returns their number.
    pub fn notify_all(&self) -> usize {
        self.0.notify_all()
    }

    /// Waits for a notification.
    pub fn wait<R: Rank, T: ?Sized>(&self, guard: &mut RankedMutexGuard<'_, R, T>) {
        self.0.wait(&mut guard.inner);
    }

    /// Waits for a notification, as long as `condition` holds.
    pub fn wait_while<R: Rank, T: ?Sized>(
        &self,
        guard: &mut RankedMutexGuard<'_, R, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) {
        self.0.wait_while(&mut guard.inner, condition);
    }

    /// Waits for a notification, this long at most.
    pub fn wait_for<R: Rank, T: ?Sized>(
        &self,
        guard: &mut RankedMutexGuard<'_, R, T>,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        self.0.wait_for(&mut guard.inner, timeout)
    }

    /// Waits for a notification, until this moment at most.
    pub fn wait_until<R: Rank, T: ?Sized>(
        &self,
        guard: &mut RankedMutexGuard<'_, R, T>,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        self.0.wait_until(&mut guard.inner, deadline)
    }

    /// Waits for a notification, as long as `condition` holds, this long at most.
    pub fn wait_while_for<R: Rank, T: ?Sized>(
        &self,
        guard: &mut RankedMutexGuard<'_, R, T>,
        condition: impl FnMut(&mut T) -> bool,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        self.0.wait_while_for(&mut guard.inner, condition, timeout)
    }
}
