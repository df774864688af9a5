//! How many commands wait, and what they brought.

use super::PendingOp;
use kedge_types::Status;
use kedge_types::limits::COMMANDS_WAITING_MAX;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Values of commands that wait may take one in so many bytes of the quota; one larger command still waits.
const BYTES_RATIO: u64 = 10;

/// Commands that wait for the same kind of thing.
#[derive(Debug, Default)]
pub struct AdmissionLimiter {
    commands: AtomicUsize,
    /// Of the values that they brought.
    bytes: AtomicUsize,
}

impl AdmissionLimiter {
    /// Returns the number of waiting commands.
    pub fn waiting(&self) -> usize {
        self.commands.load(Ordering::SeqCst)
    }

    /// Counts a command that is to wait.
    ///
    /// # Errors
    /// `TemporaryFailure` when there are too many.
    pub fn admit(&self, pending: &PendingOp, quota_bytes: u64) -> Result<(), Status> {
        let bytes = pending.op.bytes();
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let waiting = self.commands.fetch_add(1, Ordering::SeqCst);
        let too_large = before > 0 && (before + bytes) as u64 > quota_bytes / BYTES_RATIO;
        if waiting >= COMMANDS_WAITING_MAX || (bytes > 0 && too_large) {
            self.end(pending);
            return Err(Status::TemporaryFailure);
        }
        Ok(())
    }

    /// A command does not wait any more.
    pub fn end(&self, pending: &PendingOp) {
        self.commands.fetch_sub(1, Ordering::SeqCst);
        self.bytes.fetch_sub(pending.op.bytes(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::pending;
    use super::*;
    use kedge_vbucket::{ConcatMode, DocOp};

    #[test]
    fn what_waits_is_bounded_by_number_and_by_bytes() {
        let limiter = AdmissionLimiter::default();
        let small = pending(1, DocOp::Get);
        for _ in 0..COMMANDS_WAITING_MAX {
            limiter.admit(&small, 1_000).unwrap();
        }
        let refused = Err(Status::TemporaryFailure);
        assert_eq!(limiter.admit(&small, 1_000), refused);
        limiter.end(&small);
        let large = |bytes: usize| {
            let mode = ConcatMode::Append;
            let bytes = vec![0; bytes].into();
            pending(2, DocOp::Concat { mode, bytes })
        };
        assert_eq!(limiter.admit(&large(500), 1_000), Ok(()), "one in any case");
        limiter.end(&small);
        assert_eq!(limiter.admit(&large(1), 1_000), refused);
        limiter.end(&large(500));
        assert_eq!(limiter.admit(&large(100), 1_000), Ok(()));
        assert_eq!(limiter.waiting(), COMMANDS_WAITING_MAX - 1);
    }
}
