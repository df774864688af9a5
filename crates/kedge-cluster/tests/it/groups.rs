//! Server groups are made, renamed and deleted, and nodes get others than they were started with.

use std::collections::{BTreeMap, BTreeSet};

use kedge_cluster::{
    ClusterError, ClusterMap, CompatLevel, GroupChange, GroupError, plan_group_change,
    plan_node_change, plan_remove_node,
};

use crate::copies::map;

fn made(map: &ClusterMap, change: &GroupChange) -> ClusterMap {
    let next = plan_group_change(map, change).expect("it can be");
    let next = next.expect("it changes something");
    assert!(next.revision > map.revision);
    ClusterMap::from_json(&next.to_json()).expect("it is read as it was written")
}

fn refused(map: &ClusterMap, change: &GroupChange) -> GroupError {
    match plan_group_change(map, change) {
        Err(ClusterError::Group(why)) => why,
        other => panic!("{other:?}"),
    }
}

fn add(name: &str) -> GroupChange {
    GroupChange::Add(name.to_owned())
}

fn rename(from: &str, to: &str) -> GroupChange {
    GroupChange::Rename {
        from: from.to_owned(),
        to: to.to_owned(),
    }
}

fn move_to(node: u16, to: &str) -> GroupChange {
    GroupChange::Move {
        node,
        to: to.to_owned(),
    }
}

/// Returns a map whose nodes are all in one group, and the name of that.
fn one_group() -> (ClusterMap, String) {
    let map = map(3, 1, 4);
    let name = map.nodes[&0].server_group.clone();
    assert_eq!(map.groups(), BTreeSet::from([&*name]));
    (map, name)
}

#[test]
fn groups_are_added_renamed_and_deleted() {
    let (before, first) = one_group();
    let two = made(&before, &add("west"));
    assert_eq!(two.groups(), BTreeSet::from([&*first, "west"]));
    assert_eq!(refused(&two, &add("west")), GroupError::Exists);
    for wrong in ["", " x", &"x".repeat(65)] {
        assert_eq!(refused(&two, &add(wrong)), GroupError::Name, "{wrong}");
    }
    let renamed = made(&two, &rename(&first, "east"));
    assert_eq!(renamed.groups(), BTreeSet::from(["east", "west"]));
    assert!(
        renamed
            .nodes
            .values()
            .all(|node| node.server_group == "east")
    );
    assert_eq!(
        refused(&renamed, &rename("east", "west")),
        GroupError::Exists
    );
    assert_eq!(refused(&renamed, &rename(&first, "x")), GroupError::Unknown);
    let delete = |name: &str| GroupChange::Delete(name.to_owned());
    assert_eq!(refused(&renamed, &delete("east")), GroupError::NotEmpty);
    assert_eq!(refused(&renamed, &delete("north")), GroupError::Unknown);
    let one = made(&renamed, &delete("west"));
    assert_eq!(one.groups(), BTreeSet::from(["east"]));
}

#[test]
fn assigned_node_keeps_its_group_when_it_starts_with_another() {
    let (before, first) = one_group();
    let two = made(&before, &add("west"));
    assert_eq!(refused(&two, &move_to(1, "north")), GroupError::Unknown);
    let mut moved = made(&two, &move_to(1, "west"));
    assert_eq!(moved.nodes[&1].server_group, "west");
    assert_eq!(moved.buckets, before.buckets, "nothing moves");
    // The node starts with the group of its settings, and at another address.
    let mut started = before.nodes[&1].clone();
    assert_eq!(
        plan_node_change(&moved, &started).expect("it is there"),
        None
    );
    started.kv_port += 1;
    moved = plan_node_change(&moved, &started)
        .expect("it is there")
        .expect("another port");
    assert_eq!(moved.nodes[&1].server_group, "west");
    // One that management did not assign takes that of its settings.
    let mut other = before.nodes[&2].clone();
    other.server_group = "north".to_owned();
    let moved = plan_node_change(&moved, &other)
        .expect("it is there")
        .expect("another group");
    assert_eq!(moved.groups(), BTreeSet::from([&*first, "north", "west"]));
    // An emptied group stays.
    let emptied = made(&moved, &move_to(2, "west"));
    assert_eq!(emptied.groups(), BTreeSet::from([&*first, "north", "west"]));
}

#[test]
fn assignment_names_all_groups_and_nodes_of_the_present_map() {
    let (before, first) = one_group();
    let two = made(&before, &add("west"));
    let wanted = |rev: i64, nodes: &[(u16, &str)], groups: &[&str]| GroupChange::Assign {
        rev: Some(rev),
        nodes: nodes
            .iter()
            .map(|(node, group)| (*node, (*group).to_owned()))
            .collect::<BTreeMap<_, _>>(),
        groups: groups.iter().map(|name| (*name).to_owned()).collect(),
    };
    let rev = two.revision.rev;
    let all = [(0, &*first), (1, "west"), (2, "west")];
    let both = [&*first, "west"];
    let assigned = made(&two, &wanted(rev, &all, &both));
    let groups: Vec<&str> = assigned
        .nodes
        .values()
        .map(|node| &*node.server_group)
        .collect();
    assert_eq!(groups, [&*first, "west", "west"]);
    assert_eq!(
        refused(&two, &wanted(rev - 1, &all, &both)),
        GroupError::Stale
    );
    assert_eq!(
        refused(&two, &wanted(rev, &all[1..], &both)),
        GroupError::Incomplete
    );
    assert_eq!(
        refused(&two, &wanted(rev, &all, &both[1..])),
        GroupError::Incomplete
    );
    // What is so already is no change.
    let again = wanted(assigned.revision.rev, &all, &both);
    assert_eq!(
        plan_group_change(&assigned, &again).expect("it can be"),
        None
    );
}

#[test]
fn changed_groups_need_compatibility_level_2() {
    let (before, _) = one_group();
    let two = made(&before, &add("west"));
    let mut first = before;
    first.level = CompatLevel::FIRST;
    let why = plan_group_change(&first, &add("west")).expect_err("it needs level 2");
    assert!(matches!(why, ClusterError::NeedsLevel { .. }), "{why}");
    let mut old = two;
    old.level = CompatLevel::FIRST;
    ClusterMap::from_json(&old.to_json()).expect_err("an earlier release cannot read it");
}

#[test]
fn removed_node_is_forgotten() {
    let (before, _) = one_group();
    let two = made(&before, &add("west"));
    let mut empty = made(&two, &move_to(2, "west"));
    empty.buckets.clear();
    let removed = plan_remove_node(&empty, 2).expect("it has nothing");
    let text = String::from_utf8(removed.to_json()).expect("JSON is UTF-8");
    assert!(!text.contains("assigned"), "{text}");
    assert!(removed.groups().contains("west"));
}
