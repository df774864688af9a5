//! The parameters of a history.

use kedge_bucket::EvictionPolicy;
use kedge_disk::Rng;
use kedge_types::DurabilityLevel;

/// The shape of a history.
#[derive(Clone, Debug)]
pub struct HistoryPlan {
    /// Nodes of the cluster.
    pub nodes: usize,
    /// Nodes that are no members at first.
    pub spares: usize,
    /// Replicas of each vBucket.
    pub replicas: usize,
    /// Members of the coordination store.
    pub store_members: usize,
    /// vBuckets of the bucket.
    pub vbuckets: u16,
    /// The number of keys that SyncWrites change; as many more are written without a level.
    pub keys: u64,
    /// The number of clients, each of which executes one operation at a time.
    pub clients: usize,
    /// The number of steps before the faults end.
    pub steps: u64,
    /// The timeout of SyncWrites, in milliseconds: shorter or longer than a lease.
    pub timeout_ms: u16,
    /// True if there is a log in front of the files.
    pub commit_log: bool,
    /// The levels of SyncWrites.
    pub levels: Vec<DurabilityLevel>,
    /// True if a killed node may come back unchanged. With a level that needs no disk, acknowledged data may be only in
    /// the memory of others, so the node is failed over before.
    pub may_come_back: bool,
    /// The pause of a node that its lease tolerates, in milliseconds.
    pub pause_ms: u64,
    /// The eviction policy.
    pub eviction: EvictionPolicy,
}

impl HistoryPlan {
    /// Returns the number of nodes, with those that are no members at first.
    #[must_use]
    pub const fn all_nodes(&self) -> usize {
        self.nodes + self.spares
    }

    /// Returns the plan of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        use DurabilityLevel::{Majority, MajorityAndPersistOnActive, PersistToMajority};
        let mut rng = Rng::new(seed ^ 0x706c_616e);
        let (nodes, replicas) = [(2, 1), (3, 1), (3, 2), (3, 2)][rng.below(4) as usize];
        let may_come_back = rng.below(3) == 0;
        let levels = if may_come_back {
            vec![PersistToMajority]
        } else {
            vec![Majority, MajorityAndPersistOnActive, PersistToMajority]
        };
        Self {
            nodes,
            spares: [0, 0, 1][rng.below(3) as usize],
            replicas,
            store_members: [1, 3][rng.below(2) as usize],
            vbuckets: 1 + rng.below(3) as u16,
            keys: 4 + rng.below(8),
            clients: 2 + rng.below(4) as usize,
            steps: 4_000,
            timeout_ms: [500, 3_000][rng.below(2) as usize],
            commit_log: rng.below(4) != 0,
            levels,
            may_come_back,
            pause_ms: 5 + rng.below(200),
            eviction: match rng.below(2) {
                0 => EvictionPolicy::ValueOnly,
                _ => EvictionPolicy::FullEviction,
            },
        }
    }
}
