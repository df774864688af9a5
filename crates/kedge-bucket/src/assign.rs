//! What the cluster makes of vBuckets: many get their states at once, and tell how far they are.

use crate::vbuckets::VbRole;
use crate::vbuckets::VbStates;
use kedge_bucket_core::{BucketPhase, new_uuid};
use kedge_types::{Seqno, Status, VbId, VbUuid};
use kedge_vbucket::{StateChange, VBucket, VbState};

/// How far a vBucket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VbPosition {
    /// The vBucket.
    pub vb: VbId,
    /// What it is to its node.
    pub state: VbState,
    /// Its last seqno.
    pub high_seqno: Seqno,
    /// All up to this seqno is on disk.
    pub persisted_seqno: Seqno,
    /// The last prepare that it acknowledges.
    pub high_prepared: Seqno,
    /// Whether it stands at the end of a snapshot.
    pub consistent: bool,
    /// (uuid, seqno), newest first.
    pub failover: Vec<(VbUuid, Seqno)>,
}

impl VbStates {
    /// Gives vBuckets their states, one after the other, and makes that durable with one sync. A vBucket that is deleted
    /// begins anew, unless it is to be dead. Returns those that could not be changed, as their files cannot be read.
    ///
    /// # Errors
    /// `NotMyVbucket` for a number that the bucket has not; `TemporaryFailure` while loading, or when the states are not
    /// durable yet. Some may have been given then.
    pub fn assign(&self, roles: &[(VbId, VbRole)]) -> Result<Vec<VbId>, Status> {
        let mut refused = Vec::new();
        if self.core.phase() != BucketPhase::Open {
            return Err(Status::TemporaryFailure);
        }
        for (vb, role) in roles {
            let vb = *vb;
            let _alone = self.core.hold_vbucket(vb)?;
            let changed = self.core.change_vbucket(vb, |vbucket| {
                let is_dead = vbucket.state() == VbState::Dead;
                let is_gone = vbucket.is_deleted() && role.state == VbState::Dead;
                if !(is_gone || is_dead && role.unless_dead) {
                    vbucket.set_state(StateChange {
                        topology: role.topology.clone(),
                        takeover: role.takeover,
                        ..StateChange::to(role.state, new_uuid())
                    });
                }
                Ok(())
            });
            if changed.is_err() {
                refused.push(vb);
            }
        }
        let vb = roles.first().map_or(VbId(0), |(vb, _)| *vb);
        self.persistence.sync().map_err(|error| {
            self.persistence
                .report_disk_error(vb, &error, "the states are not on disk yet")
        })?;
        Ok(refused)
    }

    /// How far each vBucket is; those that were deleted, or whose files cannot be read, are left out.
    ///
    /// # Errors
    /// `TemporaryFailure` while loading.
    pub fn positions(&self) -> Result<Vec<VbPosition>, Status> {
        if self.core.phase() != BucketPhase::Open {
            return Err(Status::TemporaryFailure);
        }
        let position = |vbucket: &kedge_sync::RankedMutex<kedge_sync::ranks::Vbucket, VBucket>| {
            let vbucket = vbucket.lock();
            if vbucket.is_deleted() || vbucket.is_quarantined() {
                return None;
            }
            let progress = vbucket.progress();
            Some(VbPosition {
                vb: vbucket.id(),
                state: progress.state,
                high_seqno: progress.high_seqno,
                persisted_seqno: progress.persisted_seqno,
                high_prepared: progress.high_prepared,
                consistent: progress.consistent == progress.high_seqno,
                failover: vbucket.failover().entries().to_vec(),
            })
        };
        Ok(self.core.vbuckets.iter().filter_map(position).collect())
    }

    /// Before commands are let in: what was active is so only when the cluster says it again.
    pub(crate) fn await_assignment(&self) {
        let now = self.core.setup.clock.now();
        for vbucket in &self.core.vbuckets {
            let mut vbucket = vbucket.lock();
            if vbucket.state() == VbState::Active {
                let change = StateChange::to(VbState::Pending, new_uuid());
                let step = |vbucket: &mut VBucket| vbucket.set_state(change);
                // Nobody waits for anything yet.
                let ((), _) = self.core.account(now, &mut vbucket, step);
            }
        }
    }
}
