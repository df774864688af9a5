//! A lock for one writer or several readers, with a rank.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::Rank;
use crate::held::{Holding, check};

/// A lock of the rank `R` for one writer or several readers. A thread reads it once at a time, too: a second read could wait
/// for a writer that waits for the first.
pub struct RankedRwLock<R, T: ?Sized> {
    rank: PhantomData<fn() -> R>,
    inner: RwLock<T>,
}

impl<R: Rank, T> RankedRwLock<R, T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self {
            rank: PhantomData,
            inner: RwLock::new(value),
        }
    }
}

impl<R: Rank, T: ?Sized> RankedRwLock<R, T> {
    /// Waits until nobody writes.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock of the same rank or a higher one.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn read(&self) -> RankedRwLockReadGuard<'_, R, T> {
        check::<R>();
        RankedRwLockReadGuard {
            inner: self.inner.read(),
            _holding: Holding::new(),
        }
    }

    /// Waits until nobody reads or writes.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock of the same rank or a higher one.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn write(&self) -> RankedRwLockWriteGuard<'_, R, T> {
        check::<R>();
        RankedRwLockWriteGuard {
            inner: self.inner.write(),
            _holding: Holding::new(),
        }
    }
}

impl<R: Rank, T: Default> Default for RankedRwLock<R, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<R: Rank, T: ?Sized + fmt::Debug> fmt::Debug for RankedRwLock<R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// The right to read the value of a [`RankedRwLock`].
#[must_use = "the lock is released when the guard is dropped"]
pub struct RankedRwLockReadGuard<'a, R: Rank, T: ?Sized> {
    inner: RwLockReadGuard<'a, T>,
    _holding: Holding<R>,
}

impl<R: Rank, T: ?Sized> Deref for RankedRwLockReadGuard<'_, R, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

/// The right to change the value of a [`RankedRwLock`].
#[must_use = "the lock is released when the guard is dropped"]
pub struct RankedRwLockWriteGuard<'a, R: Rank, T: ?Sized> {
    inner: RwLockWriteGuard<'a, T>,
    _holding: Holding<R>,
}

impl<R: Rank, T: ?Sized> Deref for RankedRwLockWriteGuard<'_, R, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<R: Rank, T: ?Sized> DerefMut for RankedRwLockWriteGuard<'_, R, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}
