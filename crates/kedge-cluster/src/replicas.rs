//! The number of replicas of a bucket, and the copies that exist so far.

use serde_json::Value;

use crate::{Chain, MapBucket, VbucketRole};

impl MapBucket {
    /// Returns the number of replicas that all vBuckets have, as far as their nodes exist.
    #[must_use]
    pub fn replicas(&self) -> usize {
        let places = self.chains.iter().map(|chain| chain.0.len());
        places.min().unwrap_or(0).saturating_sub(1)
    }

    /// Returns the number of replicas of the settings, limited to the number of other nodes over which the bucket is
    /// spread.
    #[must_use]
    pub fn wanted_replicas(&self) -> usize {
        let wanted = self.settings.get("replicas").and_then(Value::as_u64);
        let wanted = wanted.and_then(|wanted| usize::try_from(wanted).ok());
        wanted.map_or(self.replicas(), |wanted| {
            wanted.min(self.servers.len().saturating_sub(1))
        })
    }

    /// Returns the role of a node for a vBucket: a node that joins or is in the target chain follows the active, too.
    #[must_use]
    pub fn role(&self, vb: u16, node: u16) -> VbucketRole {
        let chain = &self.chains[usize::from(vb)];
        let role = chain.role(node);
        let next = self.next.get(&vb);
        let follows = self.joins(vb, node) || next.is_some_and(|next| next.chain.contains(node));
        if role == VbucketRole::None && follows {
            return VbucketRole::Replica {
                active: chain.active(),
            };
        }
        role
    }

    /// Returns the second chain whose majority a SyncWrite of a vBucket needs: while the vBucket moves, and while its
    /// target chain counts. The first node of it is the next active; the present one, as long as nothing moves, if the
    /// target chain has it.
    #[must_use]
    pub fn second_chain(&self, vb: u16) -> Option<Chain> {
        let chain = &self.chains[usize::from(vb)];
        let next = self.next.get(&vb).filter(|next| next.counts);
        match (self.moves.get(&vb), next) {
            (Some(_), Some(next)) => Some(next.chain.clone()),
            (Some(pending), None) => Some(chain.led_by(pending.to)),
            (None, Some(next)) => Some(match chain.active() {
                Some(active) => next.chain.led_by(active),
                None => next.chain.clone(),
            }),
            (None, None) => None,
        }
    }

    /// Returns whether nodes follow that do not count yet, or not alone.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        !(self.next.is_empty() && self.joining.is_empty())
    }

    /// Returns whether a vBucket has another number of replicas than the wanted one.
    pub(crate) fn is_to_change(&self) -> bool {
        let places = self.wanted_replicas() + 1;
        self.chains.iter().any(|chain| chain.0.len() != places)
    }
}
