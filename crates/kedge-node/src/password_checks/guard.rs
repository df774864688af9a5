//! The refusal of attempts that come too soon after wrong passwords, for all ports together.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kedge_sync::{RankedMutex, ranks::LoginFailures};
use kedge_types::Clock;

use super::delays::{FailureTables, LoginDelays};

/// The failures of logins, and the time.
pub struct LoginGuard {
    failures: RankedMutex<LoginFailures, FailureTables>,
    clock: Arc<dyn Clock>,
    refused: AtomicU64,
}

impl std::fmt::Debug for LoginGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoginGuard").finish_non_exhaustive()
    }
}

impl LoginGuard {
    pub(super) fn new(delays: LoginDelays, clock: Arc<dyn Clock>) -> Self {
        Self {
            failures: RankedMutex::new(FailureTables::new(delays)),
            clock,
            refused: AtomicU64::new(0),
        }
    }

    /// Returns the time for which an attempt has to wait, if it comes too soon after wrong passwords. It is counted as refused,
    /// and must not be checked.
    #[must_use]
    pub fn refusal(&self, address: IpAddr, user: &str) -> Option<Duration> {
        let now_ms = self.now_ms();
        let remaining = self.failures.lock().remaining(address, user, now_ms);
        if remaining.is_zero() {
            return None;
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        Some(remaining)
    }

    /// Takes note of the outcome of an attempt that was checked.
    pub fn note(&self, address: IpAddr, user: &str, is_right: bool) {
        let now_ms = self.now_ms();
        let mut failures = self.failures.lock();
        match is_right {
            true => failures.succeed(address, user),
            false => failures.fail(address, user, now_ms),
        }
    }

    /// Calls `each` with the name and value of the counter.
    pub fn stats(&self, each: &mut dyn FnMut(&str, &str)) {
        each(
            "auth_delayed",
            &self.refused.load(Ordering::Relaxed).to_string(),
        );
    }

    fn now_ms(&self) -> u64 {
        self.clock.now().mono_ns / 1_000_000
    }
}
