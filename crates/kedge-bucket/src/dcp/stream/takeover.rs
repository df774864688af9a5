//! Takeovers: the receiver's vBucket becomes active, and this one dead.

use super::VbStream;
use crate::dcp::StreamState;
use crate::dcp::component::Dcp;
use crate::tasks::VBUCKET_STATE;
use crate::vbuckets::VbRole;
use kedge_bucket_core::submit_change;
use kedge_replication::{EndReason, SourceState, StreamItem};
use kedge_types::Status;
use kedge_vbucket::{NodeName, Topology, VBucket, VbState};
use std::sync::Arc;

/// The phase of a takeover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakeoverPhase {
    /// There is no takeover, or the receiver has to catch up first.
    NotStarted,
    /// SET_VBUCKET_STATE(pending) was sent, and has not been answered.
    PendingRequested,
    /// The SyncWrites in flight end, and no others begin.
    Draining,
    /// The vBucket is being set to dead on this node.
    Deactivating,
    /// The vBucket is dead here. The remaining changes are sent, followed by SET_VBUCKET_STATE(active).
    SendingRest,
    /// SET_VBUCKET_STATE(active) was sent, and has not been answered.
    ActiveRequested,
}

impl Dcp {
    /// Checks that `consumer` may take over the vBucket. In a cluster, only the node that this node's map names as the next
    /// active may take over an active vBucket. A node with another map would leave the vBucket dead without becoming active
    /// itself. A vBucket that was handed over has no such restriction, nor has a bucket outside of a cluster.
    ///
    /// # Errors
    /// `NotMyVbucket` if the takeover is not allowed.
    pub(in crate::dcp) fn check_takeover(
        &self,
        vbucket: &VBucket,
        consumer: Option<&NodeName>,
    ) -> Result<(), Status> {
        let in_cluster = self.core.setup.topology.is_none();
        let next = vbucket
            .durability()
            .topology()
            .and_then(Topology::next_active);
        if in_cluster && vbucket.state() == VbState::Active && (next.is_none() || next != consumer)
        {
            return Err(Status::NotMyVbucket);
        }
        Ok(())
    }
}

impl VbStream {
    /// Handles the receiver's response to [`StreamItem::State`]: its vBucket has that state now.
    pub fn state_answered(&mut self) {
        match self.takeover {
            TakeoverPhase::PendingRequested => {
                self.takeover = TakeoverPhase::Draining;
                let vbucket = &self.dcp.core.vbuckets[self.shared.vb.index()];
                vbucket.lock().begin_handover();
                self.deactivate_if_drained();
            }
            TakeoverPhase::ActiveRequested => {
                self.shared.end(EndReason::Ok);
            }
            TakeoverPhase::NotStarted
            | TakeoverPhase::Draining
            | TakeoverPhase::Deactivating
            | TakeoverPhase::SendingRest => {}
        }
    }

    /// Makes the vBucket dead, in a task, when no client waits for a SyncWrite any more.
    fn deactivate_if_drained(&mut self) {
        let vbucket = self.dcp.core.vbuckets[self.shared.vb.index()].lock();
        let is_drained = vbucket.durability().is_drained();
        drop(vbucket);
        if !is_drained {
            return;
        }
        self.takeover = TakeoverPhase::Deactivating;
        let shared = Arc::clone(&self.shared);
        let stream = Arc::clone(&shared);
        let consumer = self.request.consumer.clone();
        let vb = shared.vb;
        let deactivate = move |dcp: &Dcp| {
            // The task may run late. If the stream has ended, a later map may have made the vBucket active.
            let still = |vbucket: &VBucket| {
                let allowed = dcp.check_takeover(vbucket, consumer.as_ref());
                allowed.is_ok() && !stream.is_over() && vbucket.identity() == stream.identity()
            };
            let role = VbRole {
                takeover: true,
                ..VbState::Dead.into()
            };
            dcp.states.set_vbucket_if(vb, role, still)
        };
        let done = move |done: Result<(), Status>| match done {
            Ok(()) => {
                shared.state.lock().handed_over = true;
                shared.wake();
            }
            Err(_) => shared.end(EndReason::StateChanged),
        };
        submit_change(&self.dcp, &VBUCKET_STATE, deactivate, done);
    }

    /// Allows SyncWrites again if the takeover ended before the vBucket was dead.
    pub(super) fn cancel_handover(&self) {
        if matches!(
            self.takeover,
            TakeoverPhase::Draining | TakeoverPhase::Deactivating
        ) {
            let vbucket = &self.dcp.core.vbuckets[self.shared.vb.index()];
            vbucket.lock().cancel_handover();
        }
    }

    /// Advances the takeover when all changes have been sent.
    pub(super) fn on_drained(&mut self, out: &mut Vec<StreamItem>) -> SourceState {
        if !self.shared.takeover {
            return SourceState::Idle;
        }
        match self.takeover {
            TakeoverPhase::NotStarted => {
                self.shared.counters.set_state(StreamState::TakingOver);
                self.takeover = TakeoverPhase::PendingRequested;
                out.push(StreamItem::State(VbState::Pending));
            }
            TakeoverPhase::Draining => self.deactivate_if_drained(),
            TakeoverPhase::Deactivating if self.shared.state.lock().handed_over => {
                // Changes may have been written between the last read and the state change.
                self.takeover = TakeoverPhase::SendingRest;
                return SourceState::More;
            }
            TakeoverPhase::SendingRest => {
                self.takeover = TakeoverPhase::ActiveRequested;
                out.push(StreamItem::State(VbState::Active));
            }
            TakeoverPhase::PendingRequested
            | TakeoverPhase::Deactivating
            | TakeoverPhase::ActiveRequested => {}
        }
        SourceState::Idle
    }
}
