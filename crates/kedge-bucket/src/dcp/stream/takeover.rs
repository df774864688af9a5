//! Takeovers: the receiver becomes what this vBucket is.

use super::VbStream;
use crate::dcp::StreamState;
use crate::dcp::component::Dcp;
use crate::tasks::VBUCKET_STATE;
use kedge_bucket_core::submit_change;
use kedge_replication::{EndReason, SourceState, StreamItem};
use kedge_types::Status;
use kedge_vbucket::{NodeName, Topology, VBucket, VbState};
use std::sync::Arc;

/// How far a takeover is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takeover {
    /// There is none, or the receiver has to catch up first.
    No,
    /// The receiver was told to be pending, and has not answered.
    PendingOp,
    /// The vBucket becomes dead here.
    Dying,
    /// It is dead: what is left is sent, and then the receiver is told to be active.
    Last,
    /// The receiver was told, and has not answered.
    Active,
}

impl Dcp {
    /// In a cluster an active is taken over by the node that it moves to, as far as this node knows, and by no other: one
    /// that knows of another map would have it dead, and could not be active itself. A dead vBucket has nothing to lose, and
    /// outside of a cluster whoever may manage the bucket decides.
    ///
    /// # Errors
    /// `NotMyVbucket`.
    pub(in crate::dcp) fn may_take_over(
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
    /// The receiver has answered [`StreamItem::State`]: its vBucket has that state.
    pub fn state_answered(&mut self) {
        match self.takeover {
            Takeover::PendingOp => {
                self.takeover = Takeover::Dying;
                let shared = Arc::clone(&self.shared);
                let asking = Arc::clone(&shared);
                let consumer = self.request.consumer.clone();
                let vb = shared.vb;
                let die = move |dcp: &Dcp| {
                    // The task may come late: when the stream is gone, the vBucket may be active by a later map.
                    let still = |vbucket: &VBucket| {
                        let may = dcp.may_take_over(vbucket, consumer.as_ref());
                        may.is_ok() && !asking.is_over() && vbucket.identity() == asking.identity()
                    };
                    dcp.states.set_vbucket_if(vb, VbState::Dead, still)
                };
                let done = move |done: Result<(), Status>| match done {
                    Ok(()) => {
                        shared.state.lock().handed_over = true;
                        shared.wake();
                    }
                    Err(_) => shared.end(EndReason::StateChanged),
                };
                submit_change(&self.dcp, &VBUCKET_STATE, die, done);
            }
            Takeover::Active => {
                self.shared.end(EndReason::Ok);
            }
            Takeover::No | Takeover::Dying | Takeover::Last => {}
        }
    }

    /// The stream has given all there is.
    pub(super) fn rest(&mut self, out: &mut Vec<StreamItem>) -> SourceState {
        if !self.shared.takeover {
            return SourceState::Idle;
        }
        match self.takeover {
            Takeover::No => {
                self.shared.counts.set_state(StreamState::TakingOver);
                self.takeover = Takeover::PendingOp;
                out.push(StreamItem::State(VbState::Pending));
            }
            Takeover::Dying if self.shared.state.lock().handed_over => {
                // What was written before the vBucket died may have come since the last look.
                self.takeover = Takeover::Last;
                return SourceState::More;
            }
            Takeover::Last => {
                self.takeover = Takeover::Active;
                out.push(StreamItem::State(VbState::Active));
            }
            Takeover::PendingOp | Takeover::Dying | Takeover::Active => {}
        }
        SourceState::Idle
    }
}
