//! The reconciler: computes the states of this node's vBuckets from the map and from the reports of other nodes. No
//! locks, no sockets.

use std::collections::{BTreeMap, BTreeSet};

use kedge_bucket::VbState;
use kedge_cluster::{
    Chain, CopyPosition, MapBucket, MoveStart, PendingMove, VbucketRole, newest_branch,
};

/// The largest number of vBuckets of a bucket that a node takes over at a time: nobody can write to a vBucket from its
/// release until it is active here, which takes longer the more there are.
const TAKEOVERS_MAX: usize = 16;

/// The state of a vBucket of this node, as far as this process has applied it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum AppliedState {
    /// The state on disk, but not active.
    #[default]
    Unknown,
    /// The node has no copy.
    Dead,
    /// The vBucket follows an active.
    Replica,
    /// The vBucket follows a running active, and takes over from it.
    TakingOver {
        /// The node.
        from: u16,
    },
    /// The vBucket is to become active, and first gets missing data from another node.
    CatchingUp {
        /// The node.
        from: u16,
        /// The seqno to reach.
        until: u64,
    },
    /// The vBucket is active.
    Active,
}

impl AppliedState {
    /// Returns whether the vBucket is to be active and cannot be yet.
    fn is_waiting(&self) -> bool {
        matches!(self, Self::Unknown | Self::CatchingUp { .. })
    }

    /// Returns whether the vBucket may become active at once, without asking the other copies. `is_moving` is true if
    /// the map moves it to another node.
    fn may_lead(&self, is_moving: bool) -> bool {
        match self {
            Self::Active => true,
            // A follower knows no newer map than the maker of this one, who asked all copies, or has taken over from
            // the active. Only while the vBucket moves, its new active may have been one that this map does not know.
            Self::Replica | Self::TakingOver { .. } => !is_moving,
            Self::Unknown | Self::Dead | Self::CatchingUp { .. } => false,
        }
    }

    /// Returns the corresponding state of the vBucket.
    fn vb_state(&self) -> VbState {
        match self {
            Self::Active => VbState::Active,
            Self::Replica | Self::TakingOver { .. } => VbState::Replica,
            Self::Dead => VbState::Dead,
            Self::Unknown | Self::CatchingUp { .. } => VbState::Pending,
        }
    }
}

/// The map's entry of a vBucket, as applied.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AppliedEntry {
    chain: Chain,
    second: Option<Chain>,
    role: VbucketRole,
    /// The move of the vBucket. The chains alone may be the same before and during a move to a node of the target chain; and a
    /// node may miss the maps between two moves to the same node.
    pending: Option<PendingMove>,
}

/// The vBuckets of one bucket.
#[derive(Debug, Default)]
pub(super) struct Reconciler {
    held: Vec<(AppliedState, Option<AppliedEntry>)>,
    is_new: bool,
}

/// The new state of a vBucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    pub(super) vb: u16,
    pub(super) state: VbState,
    /// The chain of that state.
    pub(super) chain: Chain,
    /// The second chain whose majority SyncWrites need.
    pub(super) second: Option<Chain>,
    /// True if a dead vBucket stays dead: it was handed over already.
    pub(super) unless_dead: bool,
    /// True if no chain has the node.
    pub(super) is_gone: bool,
}

/// The reported positions of a bucket: by node, one per vBucket.
pub(super) type ReportedPositions<'a> = BTreeMap<u16, &'a [Option<CopyPosition>]>;

/// The work to do now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ReconcilerStep {
    /// New states of vBuckets.
    pub(super) assign: Vec<Assignment>,
    /// Nodes whose positions must be known first.
    pub(super) ask: BTreeSet<u16>,
    /// The number of vBuckets that are not in their final state yet.
    pub(super) waiting: usize,
}

impl Reconciler {
    /// Creates the reconciler of a bucket; `is_new` if it was created while the cluster was running, so that no node
    /// has data of it.
    pub(super) fn new(is_new: bool) -> Self {
        Self {
            held: Vec::new(),
            is_new,
        }
    }

    /// Returns the work of the node `me` for the map. `own` are the positions here.
    pub(super) fn step(
        &mut self,
        bucket: &MapBucket,
        me: u16,
        told: &ReportedPositions<'_>,
        own: &[Option<CopyPosition>],
    ) -> ReconcilerStep {
        let mut step = ReconcilerStep::default();
        self.held
            .resize(bucket.chains.len(), (AppliedState::Unknown, None));
        for (vb, chain) in (0_u16..).zip(&bucket.chains) {
            let at = usize::from(vb);
            let pending = bucket.moves.get(&vb).copied();
            let moves_to = pending.map(|pending| pending.to);
            let says = AppliedEntry {
                chain: chain.clone(),
                second: bucket.second_chain(vb),
                role: bucket.role(vb, me),
                pending,
            };
            let (held, known) = &self.held[at];
            let same = known.as_ref() == Some(&says);
            if same && !held.is_waiting() {
                continue;
            }
            let was_active = *held == AppliedState::Active;
            let next = match says.role {
                VbucketRole::None => AppliedState::Dead,
                VbucketRole::Replica { active: Some(from) } if moves_to == Some(me) => {
                    AppliedState::TakingOver { from }
                }
                VbucketRole::Replica { .. } => AppliedState::Replica,
                VbucketRole::Active if self.is_new || held.may_lead(moves_to.is_some()) => {
                    AppliedState::Active
                }
                VbucketRole::Active => match held {
                    AppliedState::CatchingUp { until, .. } if same => {
                        let high = own.get(at).and_then(Option::as_ref);
                        if high.is_none_or(|position| position.high_seqno < *until) {
                            step.waiting += 1;
                            continue;
                        }
                        AppliedState::Active
                    }
                    _ => first(chain, me, at, told, own, &mut step.ask),
                },
            };
            step.waiting += usize::from(next.is_waiting());
            if !(same && next == self.held[at].0) {
                step.assign.push(Assignment {
                    is_gone: next == AppliedState::Dead,
                    vb,
                    state: next.vb_state(),
                    chain: chain.clone(),
                    second: says.second.clone(),
                    unless_dead: was_active && next == AppliedState::Active && moves_to.is_some(),
                });
            }
            self.held[at] = (next, Some(says));
        }
        self.is_new = false;
        step
    }

    /// Returns the vBuckets to stream, by source node.
    pub(super) fn sources(&self) -> BTreeMap<u16, Vec<u16>> {
        let mut sources: BTreeMap<u16, Vec<u16>> = BTreeMap::new();
        for (vb, (held, known)) in (0_u16..).zip(&self.held) {
            let from = match held {
                AppliedState::Replica => known.as_ref().and_then(|known| known.chain.active()),
                AppliedState::CatchingUp { from, .. } | AppliedState::TakingOver { from } => {
                    Some(*from)
                }
                AppliedState::Unknown | AppliedState::Dead | AppliedState::Active => None,
            };
            if let Some(from) = from {
                sources.entry(from).or_default().push(vb);
            }
        }
        sources
    }

    /// Returns the vBuckets of the node `me` that are new copies: no chain has the node, so no SyncWrite waits for it.
    pub(super) fn copies(&self, me: u16) -> BTreeSet<u16> {
        let is_copy = |(held, known): &(AppliedState, Option<AppliedEntry>)| {
            let has_me = |known: &AppliedEntry| {
                let second = known.second.as_ref();
                known.chain.contains(me) || second.is_some_and(|chain| chain.contains(me))
            };
            *held == AppliedState::Replica && !known.as_ref().is_some_and(has_me)
        };
        let held = (0_u16..).zip(&self.held);
        held.filter(|(_, held)| is_copy(held))
            .map(|(vb, _)| vb)
            .collect()
    }

    /// Returns the vBuckets that are taken over from their source, with the starts of their moves; further takeovers follow
    /// later.
    pub(super) fn takeovers(&self) -> BTreeMap<u16, MoveStart> {
        let held = (0_u16..).zip(&self.held);
        let taking = held.filter_map(|(vb, (held, known))| {
            let pending = known.as_ref()?.pending?;
            matches!(held, AppliedState::TakingOver { .. }).then_some((vb, pending.start))
        });
        taking.take(TAKEOVERS_MAX).collect()
    }
}

/// Returns the first state of a vBucket that this process may not make active yet: that takes the positions of all
/// other nodes of the chain.
fn first(
    chain: &Chain,
    me: u16,
    vb: usize,
    told: &ReportedPositions<'_>,
    own: &[Option<CopyPosition>],
    ask: &mut BTreeSet<u16>,
) -> AppliedState {
    let others: Vec<u16> = chain.nodes().filter(|node| *node != me).collect();
    let silent: Vec<u16> = others
        .iter()
        .copied()
        .filter(|node| !told.contains_key(node))
        .collect();
    if !silent.is_empty() {
        ask.extend(silent);
        return AppliedState::Unknown;
    }
    let nothing = CopyPosition::default();
    let mine = own.get(vb).and_then(Option::as_ref).unwrap_or(&nothing);
    let copy = |node: u16| Some((node, told.get(&node)?.get(vb)?.as_ref()?));
    let copies: Vec<(u16, &CopyPosition)> = others.into_iter().filter_map(copy).collect();
    let mut all: Vec<&CopyPosition> = copies.iter().map(|(_, position)| *position).collect();
    all.push(mine);
    let branch = newest_branch(&all);
    let best = copies
        .iter()
        .map(|(node, position)| (position.on(branch), *node))
        .max_by_key(|(standing, node)| (*standing, std::cmp::Reverse(*node)));
    match best {
        Some((best, from)) if best.high_seqno > mine.on(branch).high_seqno => {
            AppliedState::CatchingUp {
                from,
                until: best.high_seqno,
            }
        }
        _ => AppliedState::Active,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(chains: &[&[i8]]) -> MapBucket {
        let node = |node: &i8| u16::try_from(*node).ok();
        MapBucket {
            name: "b".to_owned(),
            settings: serde_json::Value::Null,
            servers: vec![0, 1, 2],
            chains: chains
                .iter()
                .map(|chain| Chain(chain.iter().map(node).collect()))
                .collect(),
            moves: BTreeMap::new(),
            next: BTreeMap::new(),
            vacated: BTreeMap::new(),
            joining: BTreeMap::new(),
            manifest: kedge_cluster::ManifestKeeper::default(),
        }
    }

    fn at(high_seqno: u64) -> Option<CopyPosition> {
        Some(CopyPosition {
            high_seqno,
            persisted_seqno: high_seqno,
            high_prepared: 0,
            consistent: true,
            catch_up_to: None,
            active: false,
            history: vec![(1, 0)],
        })
    }

    fn states(step: &ReconcilerStep) -> Vec<(u16, VbState)> {
        let assigned = step.assign.iter();
        assigned.map(|it| (it.vb, it.state)).collect()
    }

    #[test]
    fn active_waits_for_the_status_of_all_nodes_in_the_chain() {
        let map = bucket(&[&[0, 1], &[1, 0], &[0, -1], &[2, 1]]);
        let own = [at(5), at(5), at(5), at(5)];
        let mut reconciler = Reconciler::default();
        let step = reconciler.step(&map, 0, &ReportedPositions::new(), &own);
        assert_eq!(
            states(&step),
            [
                (0, VbState::Pending),
                (1, VbState::Replica),
                (2, VbState::Active),
                (3, VbState::Dead)
            ]
        );
        assert_eq!((step.ask, step.waiting), (BTreeSet::from([1]), 1));
        // Asked again in vain: nothing changes, and it waits still.
        let step = reconciler.step(&map, 0, &ReportedPositions::new(), &own);
        assert_eq!((states(&step), step.waiting), (vec![], 1));
        // The other has less: it is a replica that will catch up.
        let theirs = [at(4), at(4), None, at(9)];
        let step = reconciler.step(&map, 0, &ReportedPositions::from([(1, &theirs[..])]), &own);
        assert_eq!(states(&step), [(0, VbState::Active)]);
        assert_eq!(step.waiting, 0);
        assert_eq!(reconciler.sources(), BTreeMap::from([(1, vec![1])]));
    }

    #[test]
    fn replica_that_no_chain_has_is_a_new_copy() {
        let mut map = bucket(&[&[1, 0], &[1, 2], &[1, 2], &[0, 1]]);
        map.joining.insert(1, vec![0]);
        let own = [at(5), at(5), None, at(5)];
        let mut reconciler = Reconciler::default();
        reconciler.step(&map, 0, &ReportedPositions::new(), &own);
        assert_eq!(reconciler.sources(), BTreeMap::from([(1, vec![0, 1])]));
        assert_eq!(reconciler.copies(0), BTreeSet::from([1]));
        // It counts, and is none any more.
        map.joining.clear();
        map.chains[1] = Chain(vec![Some(1), Some(2), Some(0)]);
        reconciler.step(&map, 0, &ReportedPositions::new(), &own);
        assert_eq!(reconciler.sources(), BTreeMap::from([(1, vec![0, 1])]));
        assert_eq!(reconciler.copies(0), BTreeSet::new());
    }

    #[test]
    fn active_first_fetches_changes_that_only_a_replica_has() {
        let map = bucket(&[&[0, 1, 2]]);
        let (one, two) = ([at(7)], [at(8)]);
        let told = ReportedPositions::from([(1, &one[..]), (2, &two[..])]);
        let mut reconciler = Reconciler::default();
        let step = reconciler.step(&map, 0, &told, &[at(5)]);
        assert_eq!(states(&step), [(0, VbState::Pending)]);
        assert_eq!(reconciler.sources(), BTreeMap::from([(2, vec![0])]));
        let step = reconciler.step(&map, 0, &told, &[at(7)]);
        assert_eq!((states(&step), step.waiting), (vec![], 1));
        let step = reconciler.step(&map, 0, &told, &[at(8)]);
        assert_eq!(states(&step), [(0, VbState::Active)]);
        assert!(reconciler.sources().is_empty());
    }

    #[test]
    fn failed_source_is_dropped() {
        let theirs = [at(8)];
        let told = ReportedPositions::from([(1, &theirs[..])]);
        let mut reconciler = Reconciler::default();
        reconciler.step(&bucket(&[&[0, 1]]), 0, &told, &[at(5)]);
        let step = reconciler.step(&bucket(&[&[0, -1]]), 0, &ReportedPositions::new(), &[at(5)]);
        assert_eq!(states(&step), [(0, VbState::Active)]);
    }

    #[test]
    fn promoted_replica_is_active_at_once_and_can_step_down() {
        let mut reconciler = Reconciler::default();
        let none = ReportedPositions::new();
        reconciler.step(&bucket(&[&[1, 0]]), 0, &none, &[at(5)]);
        let step = reconciler.step(&bucket(&[&[0, -1]]), 0, &none, &[at(5)]);
        assert_eq!(states(&step), [(0, VbState::Active)]);
        // Its replica is back: the chain is another, so it is told.
        let step = reconciler.step(&bucket(&[&[0, 1]]), 0, &none, &[at(5)]);
        assert_eq!(states(&step), [(0, VbState::Active)]);
        let step = reconciler.step(&bucket(&[&[1, -1]]), 0, &none, &[at(5)]);
        assert_eq!(states(&step), [(0, VbState::Dead)]);
        // Back as the active of what nobody has: it has to ask again, and there is nobody to ask.
        let step = reconciler.step(&bucket(&[&[0, -1]]), 0, &none, &[at(5)]);
        assert_eq!(states(&step), [(0, VbState::Active)]);
    }

    #[test]
    fn new_bucket_is_active_without_asking_other_nodes() {
        let mut reconciler = Reconciler::new(true);
        let step = reconciler.step(&bucket(&[&[0, 1]]), 0, &ReportedPositions::new(), &[at(0)]);
        assert_eq!(states(&step), [(0, VbState::Active)]);
        assert!(step.ask.is_empty());
    }

    fn moving(chains: &[&[i8]], to: u16) -> MapBucket {
        let mut bucket = bucket(chains);
        bucket.moves.insert(0, since(to, 1));
        bucket
    }

    fn since(to: u16, rev: i64) -> PendingMove {
        let start = MoveStart(Some(rev));
        PendingMove { to, start }
    }

    #[test]
    fn replica_takes_over_from_a_running_active() {
        let (before, during, after) = (
            bucket(&[&[0, 1]]),
            moving(&[&[0, 1]], 1),
            bucket(&[&[1, 0]]),
        );
        let (none, own) = (ReportedPositions::new(), [at(5)]);
        let (mut old, mut new) = (Reconciler::new(true), Reconciler::default());
        old.step(&before, 0, &none, &own);
        new.step(&before, 1, &none, &own);
        // The active hears of both chains, unless it gave the vBucket up already.
        let step = old.step(&during, 0, &none, &own);
        assert_eq!(states(&step), [(0, VbState::Active)]);
        let both = Chain(vec![Some(1), Some(0)]);
        assert_eq!(step.assign[0].second, Some(both));
        assert!(step.assign[0].unless_dead);
        let step = new.step(&during, 1, &none, &own);
        assert_eq!(
            (states(&step), step.waiting),
            (vec![(0, VbState::Replica)], 0)
        );
        assert_eq!(new.takeovers(), BTreeMap::from([(0, MoveStart(Some(1)))]));
        assert_eq!(new.sources(), BTreeMap::from([(0, vec![0])]));
        // It has taken over, and asks nobody.
        let step = new.step(&after, 1, &none, &own);
        assert_eq!(states(&step), [(0, VbState::Active)]);
        assert!(new.takeovers().is_empty() && new.sources().is_empty());
        let step = old.step(&after, 0, &none, &own);
        assert_eq!(states(&step), [(0, VbState::Replica)]);
        assert_eq!(old.sources(), BTreeMap::from([(1, vec![0])]));
    }

    /// A node had taken over, and missed the map in which the move was cancelled. It has to take over again.
    #[test]
    fn node_that_missed_the_end_of_a_move_takes_part_in_the_next_one_to_the_same_node() {
        let (none, own) = (ReportedPositions::new(), [at(5)]);
        let mut again = moving(&[&[0, 1]], 1);
        again.moves.insert(0, since(1, 4));
        let mut new = Reconciler::default();
        new.step(&moving(&[&[0, 1]], 1), 1, &none, &own);
        let step = new.step(&again, 1, &none, &own);
        assert_eq!(states(&step), [(0, VbState::Replica)]);
        let starts = BTreeMap::from([(0, MoveStart(Some(4)))]);
        assert_eq!(new.takeovers(), starts);
        let step = new.step(&again, 1, &none, &own);
        assert!(step.assign.is_empty(), "it is known");
        assert_eq!(new.takeovers(), starts);
    }

    #[test]
    fn map_older_than_a_takeover_activates_nothing_before_all_copies_report() {
        let (none, own) = (ReportedPositions::new(), [at(5)]);
        let mut old = Reconciler::new(true);
        old.step(&bucket(&[&[0, 1, 2]]), 0, &none, &own);
        old.step(&moving(&[&[0, 1, 2]], 1), 0, &none, &own);
        old.step(&bucket(&[&[1, 0, 2]]), 0, &none, &own);
        // Made by a node that did not know of it, but newer.
        let map = moving(&[&[0, 1, -1]], 1);
        let step = old.step(&map, 0, &none, &own);
        assert_eq!(states(&step), [(0, VbState::Pending)]);
        assert_eq!(step.ask, BTreeSet::from([1]));
        let theirs = [at(7)];
        let step = old.step(&map, 0, &ReportedPositions::from([(1, &theirs[..])]), &own);
        assert_eq!(
            (states(&step), step.waiting),
            (vec![(0, VbState::Pending)], 1)
        );
        assert_eq!(old.sources(), BTreeMap::from([(1, vec![0])]));
    }

    fn growing(chains: &[&[i8]], next: &[&[i8]], counts: bool) -> MapBucket {
        MapBucket {
            next: (0_u16..)
                .zip(bucket(next).chains)
                .map(|(vb, chain)| (vb, kedge_cluster::NextChain { chain, counts }))
                .collect(),
            ..bucket(chains)
        }
    }

    #[test]
    fn new_copy_replicates_and_is_awaited_only_when_in_the_chain() {
        let (none, own) = (ReportedPositions::new(), [at(5)]);
        let (mut active, mut copy) = (Reconciler::new(true), Reconciler::new(true));
        active.step(&bucket(&[&[0]]), 0, &none, &own);
        copy.step(&bucket(&[&[0]]), 1, &none, &[None]);
        assert!(copy.sources().is_empty());
        let building = growing(&[&[0]], &[&[0, 1]], false);
        assert!(
            active.step(&building, 0, &none, &own).assign.is_empty(),
            "nothing is another"
        );
        let step = copy.step(&building, 1, &none, &[None]);
        assert_eq!(states(&step), [(0, VbState::Replica)]);
        assert_eq!(copy.sources(), BTreeMap::from([(0, vec![0])]));
        let counting = growing(&[&[0]], &[&[0, 1]], true);
        let step = active.step(&counting, 0, &none, &own);
        assert_eq!(step.assign[0].second, Some(Chain(vec![Some(0), Some(1)])));
        assert!(!step.assign[0].unless_dead);
        copy.step(&counting, 1, &none, &own);
        let step = active.step(&bucket(&[&[0, 1]]), 0, &none, &own);
        assert_eq!(step.assign[0].second, None);
        copy.step(&bucket(&[&[0, 1]]), 1, &none, &own);
        assert_eq!(copy.sources(), BTreeMap::from([(0, vec![0])]));
        // It goes, and with it what it has.
        let step = copy.step(&bucket(&[&[0]]), 1, &none, &own);
        assert_eq!(states(&step), [(0, VbState::Dead)]);
        assert!(step.assign[0].is_gone && copy.sources().is_empty());
    }

    /// A node that left had an active, and its target chain did not have it. The chains are the same when the target chain
    /// counts and when the takeover begins: the node that was to take over did not notice, and the rebalance hung.
    #[test]
    fn takeover_by_a_node_of_the_target_chain_begins_without_a_change_of_chains() {
        let (none, own) = (ReportedPositions::new(), [at(5)]);
        let (mut old, mut new) = (Reconciler::new(true), Reconciler::default());
        let counting = growing(&[&[0, 1]], &[&[2, 1]], true);
        old.step(&counting, 0, &none, &own);
        new.step(&counting, 2, &none, &own);
        let mut moving = counting.clone();
        moving.moves.insert(0, since(2, 1));
        assert_eq!(counting.second_chain(0), moving.second_chain(0));
        let step = old.step(&moving, 0, &none, &own);
        assert!(step.assign[0].unless_dead);
        new.step(&moving, 2, &none, &own);
        assert_eq!(new.takeovers(), BTreeMap::from([(0, MoveStart(Some(1)))]));
        let after = bucket(&[&[2, 1]]);
        let step = new.step(&after, 2, &none, &own);
        assert_eq!(states(&step), [(0, VbState::Active)]);
        let step = old.step(&after, 0, &none, &own);
        assert_eq!(states(&step), [(0, VbState::Dead)]);
        assert!(step.assign[0].is_gone);
    }

    #[test]
    fn joining_node_replicates_and_keeps_its_data_when_the_active_fails() {
        let (none, own) = (ReportedPositions::new(), [at(5)]);
        let joins = |chains: &[&[i8]]| MapBucket {
            joining: BTreeMap::from([(0, vec![1])]),
            ..bucket(chains)
        };
        let mut back = Reconciler::default();
        back.step(&bucket(&[&[0, -1]]), 1, &none, &own);
        let step = back.step(&joins(&[&[0, -1]]), 1, &none, &own);
        assert_eq!(states(&step), [(0, VbState::Replica)]);
        assert_eq!(back.sources(), BTreeMap::from([(0, vec![0])]));
        let step = back.step(&joins(&[&[-1, -1]]), 1, &none, &own);
        assert_eq!(states(&step), [(0, VbState::Replica)]);
        assert!(!step.assign[0].is_gone && back.sources().is_empty());
        // Somebody said that what it has is what counts.
        let step = back.step(&bucket(&[&[1, -1]]), 1, &none, &own);
        assert_eq!(states(&step), [(0, VbState::Active)]);
    }

    #[test]
    fn abandoned_move_restores_the_active() {
        let (none, own) = (ReportedPositions::new(), [at(5)]);
        let mut old = Reconciler::new(true);
        old.step(&bucket(&[&[0, 1, 2]]), 0, &none, &own);
        old.step(&moving(&[&[0, 1, 2]], 1), 0, &none, &own);
        // Another replica goes: what was handed over stays dead.
        let step = old.step(&moving(&[&[0, 1, -1]], 1), 0, &none, &own);
        assert!(step.assign[0].unless_dead);
        let step = old.step(&bucket(&[&[0, -1, -1]]), 0, &none, &own);
        assert_eq!(states(&step), [(0, VbState::Active)]);
        assert!(!step.assign[0].unless_dead);
    }
}
