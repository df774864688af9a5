//! The compatibility level: when it is raised, and what it allows.

use std::collections::BTreeMap;

use kedge_cluster::{
    ClusterError, ClusterMap, CompatLevel, Feature, LevelRange, NodeRecord, RecoveryType, Release,
    plan_failover, plan_full_recovery, plan_hold, plan_next_level, plan_recovery,
    plan_recovery_type, plan_threads,
};
use serde_json::{Value, json};

use crate::copies::everyone;
use crate::many::first_map;

const FIRST: LevelRange = LevelRange {
    lowest: CompatLevel::FIRST,
    highest: CompatLevel::FIRST,
};
const CURRENT: LevelRange = Release::CURRENT.levels;

fn at_first_level(count: usize) -> ClusterMap {
    let mut map = first_map(count, 1);
    map.level = CompatLevel::FIRST;
    map
}

fn with_field(map: &ClusterMap, field: &str, value: Value) -> Vec<u8> {
    let mut document: Value = serde_json::from_slice(&map.to_json()).expect("JSON");
    document[field] = value;
    document.to_string().into_bytes()
}

#[test]
fn threads_of_all_nodes_are_a_setting_of_the_map_from_level_2_on() {
    let before = crate::copies::map(2, 1, 4);
    let some = |threads: &str| [("num_reader_threads".to_owned(), threads.to_owned())].into();
    let after = plan_threads(&before, &some("3")).expect("it can be");
    let after = after.expect("it is another number");
    assert_eq!(after.threads(), &some("3"));
    let read = ClusterMap::from_json(&after.to_json()).expect("it is read as it was written");
    assert_eq!(read.threads(), after.threads());
    assert_eq!(plan_threads(&after, &some("3")).expect("it can be"), None);
    let mut first = before;
    first.level = CompatLevel::FIRST;
    plan_threads(&first, &some("3")).expect_err("it needs level 2");
    let mut old = after;
    old.level = CompatLevel::FIRST;
    ClusterMap::from_json(&old.to_json()).expect_err("an earlier release cannot read it");
}

#[test]
fn level_is_raised_once_all_nodes_support_the_next_one() {
    let map = at_first_level(3);
    let mut levels: BTreeMap<&str, LevelRange> = BTreeMap::from([("n_0", CURRENT), ("n_1", FIRST)]);
    let known = |levels: &BTreeMap<&str, LevelRange>, name: &str| levels.get(name).copied();
    let waits = |levels: &BTreeMap<&str, LevelRange>| -> Vec<String> {
        let names = map.without_next_level(|name| known(levels, name));
        names.map(str::to_owned).collect()
    };
    assert_eq!(waits(&levels), ["n_1", "n_2"]);
    levels.insert("n_1", CURRENT);
    assert_eq!(plan_next_level(&map, |name| known(&levels, name)), None);
    levels.insert("n_2", CURRENT);
    let all = |name: &str| known(&levels, name);
    let held = plan_hold(&map, true).expect("it was not held");
    assert_eq!(plan_hold(&held, true), None);
    assert_eq!(plan_next_level(&held, all), None);
    let raised = plan_next_level(&map, all).expect("all support it");
    assert_eq!(raised.level, CompatLevel(2));
    assert_eq!(raised.revision.rev, map.revision.rev + 1);
    assert_eq!(plan_next_level(&raised, all), None, "none supports level 3");
}

/// It comes back, and would be refused.
#[test]
fn node_that_is_failed_over_holds_the_level_up() {
    let mut map = at_first_level(2);
    map.add_bucket("b", json!({}), 4, 1).expect("none failed");
    let map = plan_failover(&map, 1, &everyone(&map, 5), false).expect("nothing is lost");
    let levels = |name: &str| (name == "n_0").then_some(CURRENT);
    assert_eq!(plan_next_level(&map.map, levels), None);
}

#[test]
fn map_of_the_first_level_has_no_field_of_a_later_one() {
    let map = at_first_level(2);
    let document: Value = serde_json::from_slice(&map.to_json()).expect("JSON");
    assert_eq!(document.get("level"), None);
    let read = ClusterMap::from_json(&map.to_json()).expect("it can be read");
    assert_eq!(read.level, CompatLevel::FIRST);
    let read = ClusterMap::from_json(&first_map(2, 1).to_json()).expect("it can be read");
    assert_eq!(read.level, CompatLevel::HIGHEST);
}

#[test]
fn feature_is_refused_below_its_level() {
    let mut map = at_first_level(2);
    map.add_bucket("b", json!({}), 4, 1).expect("none failed");
    let failed = plan_failover(&map, 1, &everyone(&map, 5), false).expect("nothing is lost");
    let mut failed = failed.map;
    for refused in [
        plan_full_recovery(&failed, 1).map(drop),
        plan_recovery_type(&failed, 1, Some(RecoveryType::Delta)).map(drop),
    ] {
        let error = refused.expect_err("it needs level 2");
        let is_level = matches!(
            error,
            ClusterError::NeedsLevel {
                feature: Feature::ChosenRecovery,
                ..
            }
        );
        assert!(is_level, "{error}");
    }
    plan_recovery(&failed, 1).expect("delta recovery needs no level");
    failed.level = CompatLevel(2);
    plan_full_recovery(&failed, 1).expect("the level has it");
    let chosen = plan_recovery_type(&failed, 1, Some(RecoveryType::Full));
    let mut chosen = chosen.expect("the level has it").expect("a change");
    ClusterMap::from_json(&chosen.to_json()).expect("it can be read");
    chosen.level = CompatLevel::FIRST;
    let error = ClusterMap::from_json(&chosen.to_json()).expect_err("it cannot be");
    assert!(
        error.to_string().contains("needs compatibility level 2"),
        "{error}"
    );
}

#[test]
fn unknown_fields_are_errors_and_newer_releases_are_named() {
    let map = first_map(2, 1);
    let unknown = with_field(&map, "later", json!(1));
    let error = ClusterMap::from_json(&unknown).expect_err("no such field");
    assert!(matches!(error, ClusterError::Damaged(_)), "{error}");
    let newer = with_field(&map, "level", json!(CompatLevel::HIGHEST.0 + 1));
    let mut newer: Value = serde_json::from_slice(&newer).expect("JSON");
    newer["later"] = 1.into();
    let error = ClusterMap::from_json(newer.to_string().as_bytes()).expect_err("newer");
    let error = error.to_string();
    assert!(error.ends_with("use a newer release"), "{error}");
}

#[test]
fn error_names_a_release_that_supports_the_level() {
    let older = Release {
        version: "0.0.1",
        levels: FIRST,
    };
    older.check(CompatLevel::FIRST, []).expect("it has it");
    let record = NodeRecord::new(&first_map(1, 0).nodes[&0], Release::CURRENT);
    let name = "n_0".to_owned();
    let error = older.check(CompatLevel(2), [(&name, &record)]);
    assert_eq!(
        error.expect_err("it does not have it").to_string(),
        format!(
            "the cluster has compatibility level 2, and this release, 0.0.1, supports level 1: use release {}, as node \
             \"n_0\" does",
            Release::CURRENT.version
        )
    );
    let later = Release {
        version: "0.9.0",
        levels: LevelRange {
            lowest: CompatLevel(3),
            highest: CompatLevel(4),
        },
    };
    let error = later.check(CompatLevel(2), []).expect_err("too old");
    assert!(error.to_string().contains("raise the level"), "{error}");
}

/// Nodes of other releases read the records, whatever the level is.
#[test]
fn record_of_a_newer_release_can_be_read() {
    let record = NodeRecord::new(&first_map(1, 0).nodes[&0], Release::CURRENT);
    let mut document: Value = serde_json::from_slice(&record.to_json()).expect("JSON");
    document["later"] = 1.into();
    let read = NodeRecord::from_json(document.to_string().as_bytes()).expect("it can be read");
    assert_eq!(read, record);
    for field in ["lowest_level", "highest_level"] {
        document.as_object_mut().expect("an object").remove(field);
    }
    let read = NodeRecord::from_json(document.to_string().as_bytes()).expect("it can be read");
    assert_eq!(read.levels, FIRST, "a release without levels");
}
