//! Arguments and lines of several groups of STAT.

use std::sync::Arc;

use kedge_bucket::{Bucket, VbFigures, VbState};
use kedge_types::{Status, VbId};

use crate::session::CommandFailure;
use crate::stat_generator::{AddStat, StatGenerator};

/// The outcome of a group: all lines were produced (`None`), or the rest is left to a generator.
pub(crate) type StatStep = Result<Option<StatGenerator>, CommandFailure>;

/// Shows the result of `look` for all vBuckets of a bucket, in steps, or at once for the one that the argument names.
///
/// # Errors
/// `Invalid` for an argument that is no number, `NotMyVbucket` for a vBucket that this node does not have.
pub(super) fn of_vbuckets<F>(
    bucket: &Arc<Bucket>,
    argument: Option<&str>,
    each: AddStat<'_>,
    look: impl Fn(&Bucket, VbId) -> Option<F> + Send + 'static,
    mut show: impl FnMut(VbId, F, AddStat<'_>) + Send + 'static,
) -> StatStep {
    if let Some(argument) = argument {
        let vb = vbucket_number(argument)?;
        show(vb, look(bucket, vb).ok_or(Status::NotMyVbucket)?, each);
        return Ok(None);
    }
    let bucket = bucket.clone();
    let all = (0..bucket.vbuckets()).map(VbId);
    Ok(Some(StatGenerator::over(all, move |vb, each| {
        if let Some(found) = look(&bucket, vb) {
            show(vb, found, each);
        }
    })))
}

/// The vBucket that an argument names.
pub(super) fn vbucket_number(argument: &str) -> Result<VbId, CommandFailure> {
    let number = argument.parse().map_err(|_| {
        CommandFailure::new(
            Status::Invalid,
            "the argument must be the number of a vBucket",
        )
    })?;
    Ok(VbId(number))
}

pub(super) fn state_name(figures: &VbFigures) -> &'static str {
    state_name_of(figures.state)
}

pub(super) const fn state_name_of(state: VbState) -> &'static str {
    use kedge_bucket::VbState::{Active, Dead, Pending, Replica};
    match state {
        Active => "active",
        Replica => "replica",
        Pending => "pending",
        Dead => "dead",
    }
}
