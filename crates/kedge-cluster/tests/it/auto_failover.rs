//! Automatic failover: the rules one by one, and that no history of observations breaks one.

use std::time::Duration;

use kedge_cluster::{
    AutoFailover, AutoFailoverChange, AutoFailoverEdit, AutoFailoverSettings, ClusterObservation,
    Decision, DiskHealth, DiskOptionChange, DiskTrouble, DownCause, FailoverLosses, LeaseSeen,
    MemberObservation, NodeHealth, RebalanceKind, Refusal,
};
use proptest::prelude::*;

const LEASE: Duration = Duration::from_secs(5);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A cluster whose members renew their leases, as node 0 sees it, with the state that decides.
struct Cluster {
    now: Duration,
    machine: AutoFailover,
    observed: ClusterObservation,
}

impl Cluster {
    /// A cluster with a member in each of these groups.
    fn of(groups: &[&str]) -> Self {
        let now = Duration::from_secs(100);
        let mut cluster = Self::starting(groups, now);
        cluster.pass(500, &[]);
        cluster
    }

    /// The same before any renewal.
    fn starting(groups: &[&str], now: Duration) -> Self {
        let member = |(node, group): (u16, &&str)| MemberObservation {
            node,
            name: format!("n_{node}"),
            group: (*group).to_owned(),
            lease: LeaseSeen::Held {
                renewed: now,
                ends: now + LEASE,
            },
            health: NodeHealth::default(),
            applied: true,
            leads: true,
        };
        Self {
            now,
            machine: AutoFailover::default(),
            observed: ClusterObservation {
                me: 0,
                is_orchestrator: true,
                store_reached: true,
                settings: AutoFailoverSettings::default(),
                operation: None,
                members: (0..).zip(groups).map(member).collect(),
            },
        }
    }

    fn renew(&mut self, node: u16) {
        self.observed.members[usize::from(node)].lease = LeaseSeen::Held {
            renewed: self.now,
            ends: self.now + LEASE,
        };
    }

    fn decide(&mut self) -> Decision {
        self.machine.decide(self.now, &self.observed)
    }

    /// Lets so many milliseconds pass in which all but the given nodes renew their leases, and returns the last decision.
    fn pass(&mut self, millis: u64, without: &[u16]) -> Decision {
        let until = self.now + ms(millis);
        while self.now < until {
            self.now = (self.now + ms(250)).min(until);
            for node in 0..self.observed.members.len() as u16 {
                if !without.contains(&node) {
                    self.renew(node);
                }
            }
            let decided = self.decide();
            if self.now == until {
                return decided;
            }
        }
        self.decide()
    }
}

fn failed_over(decision: &Decision) -> Vec<u16> {
    match decision {
        Decision::FailOver(nodes) => nodes.iter().map(|it| it.node).collect(),
        _ => Vec::new(),
    }
}

fn refusal(decision: Decision) -> Refusal {
    match decision {
        Decision::Refused { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn silent_node_is_failed_over_when_its_lease_ends() {
    let mut cluster = Cluster::of(&["a", "a", "a"]);
    assert_eq!(cluster.pass(10_000, &[]), Decision::Idle);
    assert_eq!(cluster.pass(2_500, &[1]), Decision::Idle);
    let ends = cluster.observed.members[1].lease.ends();
    let late = Decision::Wait {
        nodes: vec!["n_1".to_owned()],
        until: ends,
    };
    assert_eq!(cluster.pass(2_000, &[1]), late);
    let Decision::FailOver(nodes) = cluster.pass(500, &[1]) else {
        panic!("its lease has ended");
    };
    assert_eq!((nodes.len(), nodes[0].node), (1, 1));
    assert_eq!(nodes[0].cause, DownCause::LeaseEnded);
    assert!(nodes[0].lease_ended);
}

#[test]
fn node_that_is_seen_without_a_record_is_down_after_the_time_of_a_lease() {
    let mut cluster = Cluster::of(&["a", "a"]);
    cluster.decide();
    cluster.observed.members[1].lease = LeaseSeen::Absent {
        since: cluster.now,
        ends: cluster.now + LEASE,
    };
    assert!(matches!(cluster.pass(4_900, &[1]), Decision::Wait { .. }));
    assert_eq!(failed_over(&cluster.pass(100, &[1])), [1]);
}

/// The nodes of a cluster that was stopped are not all back at once.
#[test]
fn member_that_was_never_seen_has_time_to_start() {
    let now = Duration::from_secs(100);
    let mut cluster = Cluster::starting(&["a", "a"], now);
    let decided = cluster.pass(29_000, &[1]);
    let waits = Decision::Wait {
        nodes: vec!["n_1".to_owned()],
        until: now + ms(250) + Duration::from_secs(30),
    };
    assert_eq!(decided, waits);
    assert_eq!(failed_over(&cluster.pass(1_250, &[1])), [1]);
    // It was seen before the store was unreachable.
    let mut cluster = Cluster::of(&["a", "a"]);
    cluster.observed.store_reached = false;
    cluster.pass(1_000, &[0, 1]);
    cluster.observed.store_reached = true;
    cluster.renew(1);
    assert_eq!(failed_over(&cluster.pass(5_000, &[1])), [1]);
}

#[test]
fn two_nodes_are_enough() {
    let mut cluster = Cluster::of(&["a", "b"]);
    assert_eq!(failed_over(&cluster.pass(5_000, &[1])), [1]);
}

#[test]
fn each_rule_refuses_with_its_reason() {
    type Change = fn(&mut Cluster);
    let table: [(Change, Refusal); 5] = [
        (|it| it.observed.settings.enabled = false, Refusal::Disabled),
        (
            |it| it.observed.is_orchestrator = false,
            Refusal::NotOrchestrator,
        ),
        (
            |it| it.observed.settings.count = 1,
            Refusal::MaximumReached(1),
        ),
        (
            |it| {
                it.observed.settings.can_abort_rebalance = false;
                it.observed.operation = Some(RebalanceKind::Rebalance);
            },
            Refusal::Operation(RebalanceKind::Rebalance),
        ),
        (
            |it| it.observed.store_reached = false,
            Refusal::StoreUnreachable,
        ),
    ];
    for (change, expected) in table {
        let mut cluster = Cluster::of(&["a", "a", "a"]);
        cluster.pass(1_000, &[]);
        change(&mut cluster);
        let reason = refusal(cluster.pass(5_000, &[2]));
        assert_eq!(reason, expected);
        assert!(Refusal::names().contains(&reason.name()), "{reason}");
    }
}

#[test]
fn last_node_is_never_failed_over() {
    let mut cluster = Cluster::of(&["a"]);
    cluster.observed.members[0].health.disk.hung_ms = 60_000;
    assert_eq!(refusal(cluster.pass(1_000, &[])), Refusal::LastNode);
}

#[test]
fn nodes_of_two_groups_are_never_failed_over_at_once() {
    let mut cluster = Cluster::of(&["a", "b", "c", "c"]);
    cluster.observed.settings.max_count = 100;
    cluster.pass(1_000, &[]);
    let both = vec!["b".to_owned(), "c".to_owned()];
    let refused = refusal(cluster.pass(60_000, &[1, 2]));
    assert_eq!(refused, Refusal::SeveralGroups(both));
    // One of them comes back, and the other one is alone then.
    cluster.renew(1);
    assert_eq!(failed_over(&cluster.pass(250, &[2])), [2]);
}

/// As after a drain: the node comes back with its replicas.
#[test]
fn node_without_active_vbuckets_is_not_failed_over() {
    let mut cluster = Cluster::of(&["a", "b", "c"]);
    cluster.observed.members[1].leads = false;
    cluster.pass(1_000, &[]);
    assert_eq!(refusal(cluster.pass(60_000, &[1])), Refusal::NoActives);
    assert_eq!(failed_over(&cluster.pass(6_000, &[1, 2])), [2]);
}

/// The lease of the second ends a moment after that of the first.
#[test]
fn nothing_is_decided_while_another_node_is_late() {
    let mut cluster = Cluster::of(&["a", "b", "c"]);
    cluster.pass(1_000, &[]);
    cluster.pass(1_000, &[1]);
    assert!(matches!(
        cluster.pass(4_000, &[1, 2]),
        Decision::Wait { .. }
    ));
    let refused = refusal(cluster.pass(1_000, &[1, 2]));
    assert!(matches!(refused, Refusal::SeveralGroups(_)), "{refused}");
    let mut cluster = Cluster::of(&["a", "b", "c"]);
    cluster.pass(1_000, &[]);
    cluster.pass(1_000, &[1]);
    cluster.pass(4_000, &[1, 2]);
    assert_eq!(
        failed_over(&cluster.pass(250, &[1])),
        [1],
        "it was only late"
    );
}

#[test]
fn several_nodes_of_one_group_are_failed_over_at_once_up_to_the_maximum() {
    for (max, count, expected) in [(5, 0, vec![1, 2, 3]), (3, 1, vec![1, 2]), (1, 0, vec![1])] {
        let mut cluster = Cluster::of(&["a", "b", "b", "b"]);
        cluster.observed.settings.max_count = max;
        cluster.observed.settings.count = count;
        cluster.pass(1_000, &[]);
        let decided = cluster.pass(5_000, &[1, 2, 3]);
        assert_eq!(failed_over(&decided), expected, "{max}, {count}");
        assert_eq!(decided.nodes().len(), expected.len());
    }
    let mut cluster = Cluster::of(&["a", "b", "b"]);
    cluster.observed.settings.disable_max_count = true;
    cluster.observed.settings.count = 7;
    cluster.pass(1_000, &[]);
    assert_eq!(failed_over(&cluster.pass(5_000, &[1, 2])), [1, 2]);
}

#[test]
fn operation_in_progress_is_aborted_by_a_failover() {
    let mut cluster = Cluster::of(&["a", "a", "a"]);
    cluster.observed.operation = Some(RebalanceKind::GracefulFailover);
    cluster.pass(1_000, &[]);
    assert_eq!(failed_over(&cluster.pass(5_000, &[1])), [1]);
}

#[test]
fn failover_that_would_lose_data_is_refused_and_planned_again() {
    let mut cluster = Cluster::of(&["a", "a", "a"]);
    cluster.pass(1_000, &[]);
    let Decision::FailOver(nodes) = cluster.pass(5_000, &[1]) else {
        panic!("its lease has ended");
    };
    let losses = FailoverLosses {
        silent: vec!["n_2".to_owned()],
        ..FailoverLosses::default()
    };
    let reason = Refusal::WouldLose(losses);
    cluster
        .machine
        .was_set_back(cluster.now, &nodes, reason.clone());
    assert_eq!(refusal(cluster.decide()), reason);
    assert_eq!(refusal(cluster.pass(900, &[1])), reason);
    assert_eq!(failed_over(&cluster.pass(100, &[1])), [1]);
}

#[test]
fn observer_that_missed_the_store_begins_anew() {
    let mut cluster = Cluster::of(&["a", "a", "a"]);
    cluster.pass(1_000, &[]);
    cluster.observed.store_reached = false;
    assert_eq!(
        refusal(cluster.pass(60_000, &[0, 1, 2])),
        Refusal::StoreUnreachable
    );
    cluster.observed.store_reached = true;
    for node in 0..3 {
        cluster.renew(node);
    }
    assert_eq!(cluster.decide(), Decision::Idle);
    assert_eq!(cluster.pass(2_000, &[1]), Decision::Idle);
    assert_eq!(failed_over(&cluster.pass(3_000, &[1])), [1]);
}

#[test]
fn restored_store_needs_every_member_once() {
    let mut cluster = Cluster::of(&["a", "a", "a"]);
    cluster.machine.store_was_restored();
    cluster.observed.members[2].applied = false;
    cluster.pass(1_000, &[]);
    let behind = Refusal::StoreRestored(vec!["n_1".to_owned(), "n_2".to_owned()]);
    assert_eq!(refusal(cluster.pass(60_000, &[1])), behind);
    cluster.observed.members[2].applied = true;
    assert_eq!(cluster.pass(250, &[]), Decision::Idle);
    assert_eq!(failed_over(&cluster.pass(5_000, &[1])), [1]);
}

#[test]
fn bad_disk_is_a_reason_after_its_period() {
    let disk = |failing_ms, hung_ms, slow_ms| DiskHealth {
        failing_ms,
        hung_ms,
        slow_ms,
    };
    for (health, expected) in [
        (disk(9_999, 9_999, 9_999), None),
        (disk(10_000, 0, 0), Some(DiskTrouble::Failing)),
        (disk(0, 10_000, 0), Some(DiskTrouble::Hung)),
        (disk(0, 0, 10_000), Some(DiskTrouble::Slow)),
    ] {
        let mut cluster = Cluster::of(&["a", "a", "a"]);
        cluster.observed.members[1].health.disk = health;
        let decided = cluster.pass(1_000, &[]);
        let Some(trouble) = expected else {
            assert_eq!(decided, Decision::Idle);
            continue;
        };
        let Decision::FailOver(nodes) = decided else {
            panic!("{decided:?}");
        };
        let lasted = Duration::from_secs(10);
        assert_eq!(nodes[0].cause, DownCause::Disk(trouble, lasted));
        assert!(!nodes[0].lease_ended, "it is alive, and has to stop first");
        let settings = &mut cluster.observed.settings;
        settings.failover_on_data_disk_issues.enabled = false;
        settings.failover_on_data_disk_non_responsiveness.enabled = false;
        assert_eq!(cluster.decide(), Decision::Idle);
    }
}

#[test]
fn orchestrator_with_a_bad_disk_resigns() {
    let mut cluster = Cluster::of(&["a", "a", "a"]);
    cluster.observed.members[0].health.disk.hung_ms = 12_000;
    let cause = DownCause::Disk(DiskTrouble::Hung, Duration::from_secs(12));
    assert_eq!(cluster.pass(1_000, &[]), Decision::Resign(cause));
}

/// A node that renews its lease just in time, again and again, serves hardly anything.
#[test]
fn flapping_node_is_failed_over_unless_it_is_punctual_for_the_timeout() {
    let mut cluster = Cluster::of(&["a", "a", "a"]);
    cluster.pass(10_000, &[]);
    let mut rounds = 0;
    let decided = loop {
        let decided = cluster.pass(4_500, &[1]);
        rounds += 1;
        if matches!(decided, Decision::FailOver(_)) || rounds == 10 {
            break decided;
        }
        assert_eq!(cluster.pass(1_000, &[]), Decision::Idle, "it is back");
    };
    // Each time it was late for two seconds.
    assert_eq!(rounds, 3, "{decided:?}");
    let Decision::FailOver(nodes) = decided else {
        panic!("{decided:?}");
    };
    assert!(matches!(nodes[0].cause, DownCause::Flapping(_)));
    assert!(!nodes[0].lease_ended);
    let mut cluster = Cluster::of(&["a", "a", "a"]);
    for _ in 0..20 {
        assert!(matches!(cluster.pass(4_500, &[1]), Decision::Wait { .. }));
        assert_eq!(cluster.pass(5_500, &[]), Decision::Idle);
    }
}

/// A store that is slow delays the renewals of all nodes.
#[test]
fn renewals_that_a_slow_store_delays_are_no_flapping() {
    let mut cluster = Cluster::of(&["a", "a", "a"]);
    cluster.pass(10_000, &[]);
    for _ in 0..20 {
        cluster.pass(4_500, &[0, 1, 2]);
        assert_eq!(cluster.pass(1_000, &[]), Decision::Idle);
    }
}

#[test]
fn settings_are_read_as_they_were_written() {
    let settings = AutoFailoverSettings::default().counted(3);
    let read = AutoFailoverSettings::from_json(&settings.to_json()).expect("a document");
    assert_eq!(read, settings);
    let reset = AutoFailoverEdit::ResetCount.apply(&read);
    assert_eq!(reset, Ok(AutoFailoverSettings::default()));
    for wrong in [
        r#"{"version":2}"#.to_owned(),
        "{}".to_owned(),
        String::from_utf8(settings.to_json())
            .expect("text")
            .replace("\"timeout\":5", "\"timeout\":0"),
    ] {
        AutoFailoverSettings::from_json(wrong.as_bytes()).expect_err(&wrong);
    }
}

#[test]
fn change_names_each_wrong_field() {
    let on = AutoFailoverChange {
        enabled: Some(true),
        timeout: Some(5),
        ..AutoFailoverChange::default()
    };
    let with_period = |time_period| DiskOptionChange {
        enabled: Some(true),
        time_period,
    };
    let table = [
        (AutoFailoverChange::default(), vec!["enabled"]),
        (
            AutoFailoverChange {
                timeout: None,
                ..on
            },
            vec!["timeout"],
        ),
        (
            AutoFailoverChange {
                timeout: Some(121),
                max_count: Some(0),
                ..on
            },
            vec!["timeout", "maxCount"],
        ),
        (
            AutoFailoverChange {
                max_count: Some(2),
                disable_max_count: Some(true),
                ..on
            },
            vec!["maxCount"],
        ),
        (
            AutoFailoverChange {
                data_disk_issues: with_period(None),
                data_disk_non_responsiveness: with_period(Some(4)),
                ..on
            },
            vec![
                "failoverOnDataDiskIssues[timePeriod]",
                "failoverOnDataDiskNonResponsiveness[timePeriod]",
            ],
        ),
    ];
    let settings = AutoFailoverSettings::default();
    for (change, expected) in table {
        let errors = change.apply(&settings).expect_err("it is wrong");
        let fields: Vec<&str> = errors.iter().map(|it| it.field).collect();
        assert_eq!(fields, expected);
    }
}

#[test]
fn change_keeps_what_it_does_not_give() {
    let settings = AutoFailoverSettings::default().counted(1);
    let change = AutoFailoverChange {
        enabled: Some(true),
        timeout: Some(120),
        max_count: Some(3),
        ..AutoFailoverChange::default()
    };
    let next = change.apply(&settings).expect("it is right");
    let mut expected = settings;
    expected.timeout = 120;
    expected.max_count = 3;
    assert_eq!(next, expected);
    let off = AutoFailoverChange {
        enabled: Some(false),
        ..AutoFailoverChange::default()
    };
    let off = off.apply(&next).expect("it is right");
    assert!(!off.enabled && !off.failover_on_data_disk_issues.enabled);
    assert!(!off.failover_on_data_disk_non_responsiveness.enabled);
    assert_eq!((off.timeout, off.count), (120, 1));
}

/// One step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Pass(u64, Vec<bool>),
    Disk(usize, u64),
    Orchestrator(bool),
    Store(bool),
    Restored,
    Enabled(bool),
    Count(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (1_u64..6_000, prop::collection::vec(any::<bool>(), 6)).prop_map(|(ms, up)| Step::Pass(ms, up)),
        1 => (0_usize..6, 0_u64..20_000).prop_map(|(node, ms)| Step::Disk(node, ms)),
        1 => any::<bool>().prop_map(Step::Orchestrator),
        1 => any::<bool>().prop_map(Step::Store),
        1 => Just(Step::Restored),
        1 => any::<bool>().prop_map(Step::Enabled),
        1 => (0_u32..4).prop_map(Step::Count),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #[test]
    fn no_history_breaks_a_rule(
        groups in prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..6),
        max in 1_u32..4,
        steps in steps(),
    ) {
        let mut cluster = Cluster::of(&groups);
        cluster.observed.settings.max_count = max;
        for step in steps {
            match step {
                Step::Pass(millis, up) => {
                    let without: Vec<u16> = (0..6).filter(|node| !up[usize::from(*node)]).collect();
                    cluster.pass(millis, &without);
                }
                Step::Disk(node, hung_ms) => {
                    if let Some(member) = cluster.observed.members.get_mut(node) {
                        member.health.disk.hung_ms = hung_ms;
                    }
                }
                Step::Orchestrator(is) => cluster.observed.is_orchestrator = is,
                Step::Store(reached) => cluster.observed.store_reached = reached,
                Step::Restored => cluster.machine.store_was_restored(),
                Step::Enabled(is) => cluster.observed.settings.enabled = is,
                Step::Count(count) => cluster.observed.settings.count = count,
            }
            let decided = cluster.decide();
            let Decision::FailOver(nodes) = decided else {
                continue;
            };
            let observed = &cluster.observed;
            prop_assert!(observed.is_orchestrator && observed.store_reached);
            prop_assert!(observed.settings.enabled);
            prop_assert!(!nodes.is_empty() && nodes.len() < observed.members.len());
            prop_assert!(nodes.iter().all(|it| it.node != observed.me));
            prop_assert!(observed.settings.counted(nodes.len()).count <= max);
            let group = |node: u16| observed.members[usize::from(node)].group.as_str();
            prop_assert!(nodes.iter().all(|it| group(it.node) == group(nodes[0].node)));
            for it in &nodes {
                let member = &observed.members[usize::from(it.node)];
                prop_assert_eq!(it.lease_ended, cluster.now >= member.lease.ends());
                let is_lapsed = it.cause == DownCause::LeaseEnded;
                prop_assert!(!is_lapsed || it.lease_ended);
            }
            // Whoever is neither failed over nor this node renewed its lease a moment ago, or is of the same group.
            for member in &observed.members {
                let is_punctual = member.lease.ends().saturating_sub(cluster.now) >= LEASE / 2;
                let is_spared = nodes.iter().all(|it| it.node != member.node);
                let other_group = member.group != group(nodes[0].node);
                if is_spared && other_group && member.node != observed.me {
                    prop_assert!(is_punctual, "{} is late", member.name);
                }
            }
        }
    }

    #[test]
    fn single_lost_node_is_failed_over_at_the_end_of_its_lease(
        nodes in 2_u16..6,
        lost in any::<prop::sample::Index>(),
        before_ms in 0_u64..20_000,
    ) {
        let groups = vec!["a"; usize::from(nodes)];
        let mut cluster = Cluster::of(&groups);
        let lost = 1 + u16::try_from(lost.index(usize::from(nodes) - 1)).expect("few");
        cluster.pass(before_ms, &[]);
        let ends = cluster.observed.members[usize::from(lost)].lease.ends();
        while cluster.now < ends {
            let left = u64::try_from((ends - cluster.now).as_millis()).expect("few");
            let decided = cluster.decide();
            prop_assert!(failed_over(&decided).is_empty());
            cluster.pass(left.min(125), &[lost]);
        }
        prop_assert_eq!(failed_over(&cluster.decide()), vec![lost]);
    }
}
