//! The state of a vBucket as JSON.

use super::seqnos;
use crate::kv::{
    CatchUpEntry, CheckpointKind, FailoverEntry, KvError, SnapshotRange, VbStateDocument,
    VbStateKind,
};
use kedge_types::{Cas, Seqno, VbUuid};
use proptest::prelude::*;

/// The state in the golden file.
const RICH: &str = concat!(
    r#"{"build":"sample","checkpoint_type":"Memory","completed_seqno":"35","#,
    r#""failover_table":[{"id":123456789012345,"seq":0}],"high_prepared_seqno":"35","#,
    r#""hlc_epoch":"1","max_cas":"1715871458030977024","max_deleted_seqno":"0","#,
    r#""max_visible_seqno":"43","might_contain_xattrs":false,"namespaces_supported":true,"#,
    r#""on_disk_prepare_bytes":"0","on_disk_prepares":"3","prepared_seqno":"35","#,
    r#""snap_end":"43","snap_start":"43","state":"active","version":4}"#,
);

/// The fields that a reader requires.
const LEAST: &str =
    r#"{"state":"replica","max_deleted_seqno":"7","snap_start":"1","snap_end":"9","max_cas":"5"}"#;

fn decode(json: &str) -> Result<VbStateDocument, KvError> {
    VbStateDocument::decode(json.as_bytes(), Seqno(43))
}

#[test]
fn vbstate_of_the_golden_file_round_trips_byte_by_byte() {
    let expected = VbStateDocument {
        build: "sample".to_owned(),
        completed_seqno: Seqno(35),
        prepared_seqno: Seqno(35),
        high_prepared_seqno: Seqno(35),
        max_visible_seqno: Seqno(43),
        snap_start: Seqno(43),
        snap_end: Seqno(43),
        hlc_epoch: Some(Seqno(1)),
        max_cas: Cas(1_715_871_458_030_977_024),
        on_disk_prepares: 3,
        failover_table: Some(vec![FailoverEntry {
            uuid: VbUuid(123_456_789_012_345),
            start: Seqno(0),
        }]),
        ..VbStateDocument::new(VbStateKind::Active)
    };
    assert_eq!(decode(RICH).as_ref(), Ok(&expected));
    assert_eq!(expected.encode(), RICH.as_bytes());
}

#[test]
fn absent_vbstate_fields_have_defaults() {
    let expected = VbStateDocument {
        max_deleted_seqno: Seqno(7),
        snap_start: Seqno(1),
        snap_end: Seqno(9),
        max_cas: Cas(5),
        max_visible_seqno: Seqno(43),
        namespaces_supported: false,
        version: 1,
        ..VbStateDocument::new(VbStateKind::Replica)
    };
    assert_eq!(decode(LEAST), Ok(expected));
}

#[test]
fn missing_required_vbstate_field_is_named() {
    for (field, name) in [
        (r#""state":"replica","#, "state"),
        (r#""max_deleted_seqno":"7","#, "max_deleted_seqno"),
        (r#""snap_start":"1","#, "snap_start"),
        (r#""snap_end":"9","#, "snap_end"),
    ] {
        assert!(LEAST.contains(field));
        let got = decode(&LEAST.replace(field, ""));
        let Err(KvError::VbState { reason }) = got else {
            panic!("without {name}: {got:?}");
        };
        assert!(reason.contains(name), "{reason}");
    }
}

#[test]
fn topology_may_have_gaps_and_unknown_fields_are_dropped() {
    let json = LEAST.replace(
        '{',
        r#"{"else":{"a":[1]},"replication_topology":[["n_0",null],["n_1"]],"#,
    );
    let got = decode(&json).expect("decodes");
    let node = |name: &str| Some(name.to_owned());
    let topology = vec![vec![node("n_0"), None], vec![node("n_1")]];
    assert_eq!(got.replication_topology, Some(topology));
    let written = String::from_utf8(got.encode()).expect("UTF-8");
    assert!(written.contains(r#""replication_topology":[["n_0",null],["n_1"]]"#));
    assert!(!written.contains("else"));
}

#[test]
fn unusual_vbstate_numbers() {
    let with = |from: &str, to: &str| {
        assert!(RICH.contains(from));
        decode(&RICH.replace(from, to))
    };
    let unset = with(r#""hlc_epoch":"1""#, r#""hlc_epoch":"-1""#).expect("decodes");
    assert_eq!(unset.hlc_epoch, None);
    assert!(
        String::from_utf8(unset.encode())
            .expect("UTF-8")
            .contains(r#""hlc_epoch":"-1""#)
    );
    let all_ones = with("1715871458030977024", "18446744073709551615").expect("decodes");
    assert_eq!((all_ones.max_cas, all_ones.has_max_cas), (Cas(0), false));
    for bad in [
        r#""snap_end":"-1""#,
        r#""snap_end":"""#,
        r#""snap_end":"+1""#,
        r#""snap_end":" 1""#,
        r#""snap_end":"0x1""#,
        r#""snap_end":"18446744073709551616""#,
        r#""snap_end":43"#,
        r#""snap_end":null"#,
        r#""snap_end":"43","snap_end":"43""#,
    ] {
        assert!(with(r#""snap_end":"43""#, bad).is_err(), "{bad}");
    }
    assert!(with(r#""hlc_epoch":"1""#, r#""hlc_epoch":"-2""#).is_err());
    assert!(with("active", "Active").is_err());
    assert!(with("Memory", "memory").is_err());
}

#[test]
fn vbstate_that_is_not_json_is_rejected() {
    for json in [
        "",
        "{",
        "[]",
        "null",
        "{}",
        "\u{feff}{}",
        "{\"state\":\"active\"}",
    ] {
        assert!(
            matches!(decode(json), Err(KvError::VbState { .. })),
            "{json}"
        );
    }
    assert!(VbStateDocument::decode(b"\xff", Seqno(0)).is_err());
    // Deep nesting causes an error, not a stack overflow.
    assert!(decode(&LEAST.replace('{', &format!("{{\"else\":{},", "[".repeat(100_000)))).is_err());
}

#[test]
fn only_an_active_repairs_its_snapshot() {
    for (state, high, expected) in [
        (VbStateKind::Active, 5, SnapshotRange::Sound),
        (VbStateKind::Replica, 1, SnapshotRange::Sound),
        (VbStateKind::Replica, 9, SnapshotRange::Sound),
        (VbStateKind::Active, 10, SnapshotRange::Repaired),
        (VbStateKind::Active, 0, SnapshotRange::Repaired),
        (VbStateKind::Replica, 10, SnapshotRange::Unusable),
        (VbStateKind::Pending, 0, SnapshotRange::Unusable),
    ] {
        let before = VbStateDocument {
            snap_start: Seqno(1),
            snap_end: Seqno(9),
            ..VbStateDocument::new(state)
        };
        let mut after = before.clone();
        assert_eq!(
            after.check_snapshot(Seqno(high)),
            expected,
            "{state:?} at {high}"
        );
        if expected == SnapshotRange::Repaired {
            assert_eq!(
                (after.snap_start, after.snap_end),
                (Seqno(high), Seqno(high))
            );
        } else {
            assert_eq!(after, before);
        }
    }
}

fn kinds() -> impl Strategy<Value = (VbStateKind, CheckpointKind)> {
    let states = [
        VbStateKind::Active,
        VbStateKind::Replica,
        VbStateKind::Pending,
        VbStateKind::Dead,
    ];
    let checkpoints = [
        CheckpointKind::Memory,
        CheckpointKind::Disk,
        CheckpointKind::InitialDisk,
    ];
    (0..4_usize, 0..3_usize)
        .prop_map(move |(state, checkpoint)| (states[state], checkpoints[checkpoint]))
}

prop_compose! {
    fn documents()(
        (state, checkpoint) in kinds(),
        seqnos in prop::array::uniform7(seqnos()),
        max_cas in 0..u64::MAX,
        hlc_epoch in prop::option::of(seqnos()),
        truths: (bool, bool),
        prepares: (u64, u64),
        build: String,
        table in prop::option::of(prop::collection::vec((any::<u64>(), any::<u64>()), 0..4)),
        replication_topology: Option<Vec<Vec<Option<String>>>>,
        catch_up in prop::option::of(seqnos()),
        installed in prop::option::of(any::<u64>()),
    ) -> VbStateDocument {
        let failover_table: Option<Vec<FailoverEntry>> = table.map(|table| {
            let entry = |(uuid, start)| FailoverEntry { uuid: VbUuid(uuid), start: Seqno(start) };
            table.into_iter().map(entry).collect()
        });
        let catch_up = catch_up.map(|seqno| CatchUpEntry {
            failover_table: failover_table.clone().unwrap_or_default(),
            seqno,
        });
        VbStateDocument {
            state,
            max_deleted_seqno: seqnos[0],
            snap_start: seqnos[1],
            snap_end: seqnos[2],
            max_cas: Cas(max_cas),
            has_max_cas: true,
            hlc_epoch,
            might_contain_xattrs: truths.0,
            namespaces_supported: truths.1,
            version: 4,
            completed_seqno: seqnos[3],
            prepared_seqno: seqnos[4],
            high_prepared_seqno: seqnos[5],
            max_visible_seqno: seqnos[6],
            on_disk_prepares: prepares.0,
            on_disk_prepare_bytes: prepares.1,
            checkpoint,
            build,
            failover_table,
            replication_topology,
            catch_up,
            installed: installed.map(VbUuid),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn round_trip(document in documents()) {
        let json = document.encode();
        prop_assert_eq!(VbStateDocument::decode(&json, Seqno(0)), Ok(document));
    }
}
