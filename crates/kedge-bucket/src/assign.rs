//! Assignment of states to many vBuckets, and their positions, for the cluster's reconciler.

use crate::vbuckets::{VbRole, VbStates};
use kedge_bucket_core::{BucketPhase, new_uuid};
use kedge_types::{Seqno, Status, VbId, VbUuid};
use kedge_vbucket::{StateChange, VBucket, VbState};

/// The position of a vBucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VbPosition {
    /// The vBucket.
    pub vb: VbId,
    /// The state of the vBucket.
    pub state: VbState,
    /// The high seqno.
    pub high_seqno: Seqno,
    /// The persisted seqno.
    pub persisted_seqno: Seqno,
    /// The seqno of the last prepare that the vBucket acknowledges.
    pub high_prepared: Seqno,
    /// True if the high seqno is the end of a snapshot.
    pub consistent: bool,
    /// The failover table: pairs of UUID and start seqno, newest first.
    pub failover: Vec<(VbUuid, Seqno)>,
    /// The seqno that the vBucket must reach again since a rollback.
    pub catch_up_to: Option<Seqno>,
}

impl VbStates {
    /// Sets the states of vBuckets one after the other, and makes them durable with one sync. A deleted vBucket is created
    /// again, unless its new state is dead. Returns the vBuckets that could not be changed because their files are unreadable.
    ///
    /// # Errors
    /// `NotMyVbucket` if the bucket has no such vBucket; `TemporaryFailure` while loading, or if the states could not be made
    /// durable. Some states may have been set in spite of an error.
    pub fn assign(&self, roles: &[(VbId, VbRole)]) -> Result<Vec<VbId>, Status> {
        let mut refused = Vec::new();
        if self.core.phase() != BucketPhase::Open {
            return Err(Status::TemporaryFailure);
        }
        for (vb, role) in roles {
            let vb = *vb;
            let _guard = self.core.hold_vbucket(vb)?;
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
            self.persistence.report_disk_error(
                vb,
                &error,
                "the new vBucket states could not be made durable",
            )
        })?;
        Ok(refused)
    }

    /// Returns the position of each vBucket, except of those that were deleted or quarantined.
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
                catch_up_to: vbucket.history().catch_up().map(|point| point.seqno),
            })
        };
        Ok(self.core.vbuckets.iter().filter_map(position).collect())
    }

    /// Sets active vBuckets to pending, before the bucket accepts commands. They become active again when the cluster
    /// confirms it.
    pub(crate) fn demote_actives(&self) {
        let now = self.core.setup.clock.now();
        for vbucket in &self.core.vbuckets {
            let mut vbucket = vbucket.lock();
            if vbucket.state() == VbState::Active {
                let change = StateChange::to(VbState::Pending, new_uuid());
                let step = |vbucket: &mut VBucket| vbucket.set_state(change);
                // There are no parked commands yet.
                let ((), _) = self.core.account(now, &mut vbucket, step);
            }
        }
    }
}
