//! The time that clients need to connect to a restarted node again.
//!
//! An SDK that fails to connect to a node of its map waits before it tries again. It would wait as long with operations on
//! vBuckets that move there meanwhile. So vBuckets move to a restarted node only after that time.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kedge_cluster::ClusterMap;
use kedge_node::coordination::NodeReport;
use kedge_types::limits::SDK_RECONNECT_SECS;

use super::peer::ASK_TIMEOUT;
use super::peers::Peers;

/// The time that clients need.
pub(super) const RECONNECT: Duration = Duration::from_secs(SDK_RECONNECT_SECS);

/// The age of this process, if clients knew the node before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Restart(Option<Instant>);

impl Restart {
    /// Creates the value at the start of the process.
    pub(super) fn now(was_known: bool) -> Self {
        Self(was_known.then(Instant::now))
    }

    /// Returns the time since the restart, in milliseconds, for other nodes; `None` for a node that was new.
    pub(super) fn age_ms(self) -> Option<u64> {
        let age = self.0?.elapsed();
        Some(u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
    }
}

/// Returns whether clients may still have to connect to a node again: it does not respond, or it restarted a short time ago.
fn awaits_clients(report: Option<&NodeReport>) -> bool {
    report.is_none_or(|report| {
        let age = report.restarted_ms.map(Duration::from_millis);
        age.is_some_and(|age| age < RECONNECT)
    })
}

/// Asks all members, and returns those to which clients may have to connect again. `own` is the report of this node.
pub(super) fn awaiting_clients(peers: &Peers, map: &ClusterMap, own: NodeReport) -> BTreeSet<u16> {
    // The last report of a node may be that of its process before.
    let reports = peers.each(map, |peer| peer.about(ASK_TIMEOUT).ok());
    let me = map.node(&own.node).ok();
    let reports = reports.into_iter().chain(me.map(|me| (me, Some(own))));
    let awaited = reports.filter(|(_, report)| awaits_clients(report.as_ref()));
    awaited.map(|(node, _)| node).collect()
}

#[cfg(test)]
mod tests {
    use kedge_cluster::LevelRange;

    use super::*;

    #[test]
    fn clients_are_awaited_after_a_restart_only() {
        let report = |restarted_ms| NodeReport {
            node: "n_1".to_owned(),
            revision: None,
            applied: None,
            users: 0,
            encryption: String::new(),
            release: String::new(),
            restarted_ms,
            levels: LevelRange::default(),
        };
        assert!(awaits_clients(None), "it is down");
        assert!(!awaits_clients(Some(&report(None))), "it is new");
        for (restarted_ms, is_awaited) in [(0, true), (5_999, true), (6_000, false)] {
            let report = report(Some(restarted_ms));
            assert_eq!(
                awaits_clients(Some(&report)),
                is_awaited,
                "{restarted_ms} ms"
            );
        }
        assert_eq!(Restart::now(false).age_ms(), None);
        assert!(Restart::now(true).age_ms().is_some());
    }
}
