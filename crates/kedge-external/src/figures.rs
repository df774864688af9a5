//! Counters of checks, and the log of a directory that fails.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::directory::DirectoryError;

/// The pause between two log lines about a directory that fails.
const LOG_PAUSE_MS: u64 = 10_000;

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) checks: AtomicU64,
    pub(crate) remembered: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    pub(crate) tokens: AtomicU64,
    pub(crate) tokens_refused: AtomicU64,
    pub(crate) tokens_failed: AtomicU64,
    /// The time of the last log line about a failure; 0 while the directory answers.
    logged_ms: AtomicU64,
}

impl Figures {
    /// Takes note of an answer of the directory.
    pub(crate) fn answered(&self, is_right: bool) {
        if !is_right {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        if self.logged_ms.swap(0, Ordering::Relaxed) > 0 {
            tracing::info!("the directory of external users answers again");
        }
    }

    /// Takes note of a check without an answer. A flood of logins does not flood the log.
    pub(crate) fn failed(&self, error: &DirectoryError, now_ms: u64) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let logged = self.logged_ms.load(Ordering::Relaxed);
        if logged == 0 || now_ms.saturating_sub(logged) >= LOG_PAUSE_MS {
            self.logged_ms.store(now_ms.max(1), Ordering::Relaxed);
            tracing::error!(
                %error,
                "the directory of external users does not answer: their logins get a temporary failure, local users are not concerned"
            );
        }
    }

    pub(crate) fn stats(&self, each: &mut dyn FnMut(&str, &str)) {
        for (name, counter) in [
            ("ldap_checks", &self.checks),
            ("ldap_refused", &self.refused),
            ("ldap_failed", &self.failed),
            ("ldap_remembered", &self.remembered),
            ("jwt_checks", &self.tokens),
            ("jwt_refused", &self.tokens_refused),
            ("jwt_failed", &self.tokens_failed),
        ] {
            each(name, &counter.load(Ordering::Relaxed).to_string());
        }
    }
}
