//! The counters of commands: hits and misses, CAS outcomes, conflicts and locks.

use super::op::{Op, PendingOp};
use kedge_bucket_core::{BucketCore, Counter};
use kedge_types::{Cas, Status};
use kedge_vbucket::{Completion, DocOp, WithMetaArgs};

/// Returns the counters of a command that found its document, and of one that did not.
fn hit_and_miss(op: &DocOp<'_>) -> Option<(Counter, Counter)> {
    Some(match op {
        DocOp::Get => (Counter::GetHits, Counter::GetMisses),
        DocOp::Delete => (Counter::DeleteHits, Counter::DeleteMisses),
        DocOp::Touch { .. } | DocOp::GetAndTouch { .. } => {
            (Counter::TouchHits, Counter::TouchMisses)
        }
        DocOp::Arithmetic(op) if op.negative => (Counter::DecrHits, Counter::DecrMisses),
        DocOp::Arithmetic(_) => (Counter::IncrHits, Counter::IncrMisses),
        _ => return None,
    })
}

/// Returns the counters of a command for the version `cas`, 0 for any, that failed with `status` or succeeded.
#[inline]
pub fn outcome_counters(
    op: &DocOp<'_>,
    cas: Cas,
    status: Option<Status>,
) -> impl Iterator<Item = Counter> {
    let of_document = match (hit_and_miss(op), status) {
        (Some((hit, _)), None) => Some(hit),
        (Some((_, miss)), Some(Status::KeyNotFound)) => Some(miss),
        _ => None,
    };
    let of_error = match (op, status) {
        (DocOp::WithMeta { args, .. }, Some(Status::KeyExists)) => Some(with_meta_counters(args).1),
        (_, Some(Status::Locked)) => Some(Counter::LockErrors),
        _ => None,
    };
    let of_cas = match status {
        _ if cas.is_none() => None,
        None => Some(Counter::CasHits),
        Some(Status::KeyNotFound) => Some(Counter::CasMisses),
        Some(Status::KeyExists) => Some(Counter::CasBadval),
        Some(_) => None,
    };
    [of_document, of_error, of_cas].into_iter().flatten()
}

/// Returns the counter of a write with metadata, and that of one which lost.
#[must_use]
pub fn with_meta_counters(args: &WithMetaArgs) -> (Counter, Counter) {
    match args.deleted {
        None => (Counter::SetWithMeta, Counter::SetWithMetaLost),
        Some(_) => (Counter::DeleteWithMeta, Counter::DeleteWithMetaLost),
    }
}

impl PendingOp {
    /// Counts the outcome of an operation that was parked.
    pub(super) fn count_outcome(&self, core: &BucketCore, completion: &Completion) {
        let Op::Document(op) = &self.op else {
            return;
        };
        let status = match completion {
            Completion::SyncWrite { result, .. } => result.as_ref().err(),
            Completion::Counter { result } => result.as_ref().err(),
            Completion::Read { result } => result.as_ref().err(),
            Completion::Meta { result } => result.as_ref().err(),
            Completion::Persisted(result) => result.as_ref().err(),
            Completion::Observed { .. }
            | Completion::Key { .. }
            | Completion::Keys { .. }
            | Completion::ScanMade { .. }
            | Completion::Scanned { .. }
            | Completion::FileRead { .. } => None,
        };
        for counter in outcome_counters(op, self.cas, status.copied()) {
            core.counters.add_shared(counter, 1);
        }
    }
}
