//! A mutex with a rank.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use parking_lot::{Mutex, MutexGuard};

use crate::Rank;
use crate::held::{Holding, check};

/// A mutex of the rank `R`.
pub struct RankedMutex<R, T: ?Sized> {
    rank: PhantomData<fn() -> R>,
    inner: Mutex<T>,
}

impl<R: Rank, T> RankedMutex<R, T> {
    /// A mutex around `value`.
    pub const fn new(value: T) -> Self {
        Self {
            rank: PhantomData,
            inner: Mutex::new(value),
        }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<R: Rank, T: ?Sized> RankedMutex<R, T> {
    /// Waits for the lock.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock of the same rank or a higher one.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) -> RankedMutexGuard<'_, R, T> {
        check::<R>();
        RankedMutexGuard {
            inner: self.inner.lock(),
            _holding: Holding::new(),
        }
    }

    /// Takes the lock if nobody holds it. As the thread does not wait, it may hold locks of any rank; those that it waits for
    /// meanwhile are checked against this one, too.
    #[inline]
    pub fn try_lock(&self) -> Option<RankedMutexGuard<'_, R, T>> {
        let inner = self.inner.try_lock()?;
        Some(RankedMutexGuard {
            inner,
            _holding: Holding::new(),
        })
    }

    /// The value, without a lock: nobody else can have it.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<R: Rank, T: Default> Default for RankedMutex<R, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<R: Rank, T: ?Sized + fmt::Debug> fmt::Debug for RankedMutex<R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// The right to the value of a [`RankedMutex`].
#[must_use = "the lock is released when the guard is dropped"]
pub struct RankedMutexGuard<'a, R: Rank, T: ?Sized> {
    pub(crate) inner: MutexGuard<'a, T>,
    _holding: Holding<R>,
}

impl<R: Rank, T: ?Sized> Deref for RankedMutexGuard<'_, R, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<R: Rank, T: ?Sized> DerefMut for RankedMutexGuard<'_, R, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<R: Rank, T: ?Sized + fmt::Debug> fmt::Debug for RankedMutexGuard<'_, R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
