//! Older headers, and rollbacks to them.

use kedge_couchstore::{
    CreateOptions, DamageKind, Error, InvalidBatch, Options, Previous, Snapshot, Version, Writer,
};
use kedge_types::Seqno;

use crate::support::{Doc, by_id, create, disk, open, path, save};

/// Makes five commits of ten documents each.
fn five_commits(writer: &mut Writer) -> Vec<Vec<Doc>> {
    let mut states = Vec::new();
    let mut all = std::collections::BTreeMap::new();
    for round in 0..5_u64 {
        let docs: Vec<Doc> = (0..10)
            .map(|n| {
                Doc::new(
                    format!("k{:02}", (n * 3 + round * 5) % 40),
                    round * 10 + n + 1,
                )
            })
            .collect();
        save(writer, &docs).expect("save");
        writer.commit(round).expect("commit");
        all.extend(docs.into_iter().map(|doc| (doc.key.clone(), doc)));
        states.push(all.values().cloned().collect());
    }
    states
}

#[test]
fn every_older_commit_can_be_read() {
    for version in [Version::V13, Version::V14] {
        let disk = disk(1);
        let new = CreateOptions {
            version,
            encryption: None,
        };
        let mut writer = Writer::create(&disk, path(), &new, &Options::default()).expect("create");
        let states = five_commits(&mut writer);
        let history: Vec<Snapshot> = open(&disk)
            .expect("open")
            .history()
            .map(|found| found.expect("a header"))
            .collect();
        assert_eq!(history.len(), 6);
        for (snapshot, state) in history.iter().zip(states.iter().rev()) {
            assert_eq!(&by_id(snapshot).expect("scan"), state);
            snapshot.check(&mut |_| {}).expect("sound");
            let again = history[0].at(snapshot.header().offset()).expect("a header");
            assert_eq!(again.header(), snapshot.header());
        }
        assert_eq!(by_id(&history[5]).expect("scan"), []);
        let newest = history[3].newest().expect("open");
        assert_eq!(newest.header(), history[0].header());
    }
}

#[test]
fn offset_without_a_header_is_reported() {
    let disk = disk(1);
    five_commits(&mut create(&disk));
    let snapshot = open(&disk).expect("open");
    for offset in [1, 48, 4097, 1 << 40] {
        let error = snapshot
            .at(kedge_couchstore::Offset(offset))
            .expect_err("no header");
        assert!(
            matches!(error, Error::Corrupt { offset: at, problem: DamageKind::NotAHeader, .. } if at.0 == offset),
            "{error}"
        );
    }
}

#[test]
fn rollback_commits_an_older_state() {
    let disk = disk(1);
    let mut writer = create(&disk);
    let states = five_commits(&mut writer);
    let newest = writer.snapshot();
    let point = writer
        .rollback_point(Seqno(25))
        .expect("search")
        .expect("there is one");
    assert_eq!(point.header().update_seqno(), Seqno(20));
    writer.rewind(point.header()).expect("rewind");
    assert_eq!(writer.update_seqno(), Seqno(20));
    // Not yet: a crash now changes nothing.
    assert_eq!(by_id(&open(&disk).expect("open")).expect("scan"), states[4]);
    writer
        .save_locals(&[(b"_local/vbstate", Some(b"{}"))])
        .expect("save");
    writer.commit(99).expect("commit");
    let snapshot = open(&disk).expect("open");
    assert_eq!(by_id(&snapshot).expect("scan"), states[1]);
    assert_eq!(
        snapshot.header().previous(),
        Previous::At(point.header().offset())
    );
    assert_eq!(snapshot.header().update_seqno(), Seqno(20));
    snapshot.check(&mut |_| {}).expect("sound");
    // The undone commits are no longer in the history, but a reader with one of them keeps it.
    let older = snapshot.older().expect("older").expect("there");
    assert_eq!(older.header(), point.header());
    assert_eq!(by_id(&newest).expect("scan"), states[4]);
    // Undone seqnos are assigned anew.
    save(&mut writer, &[Doc::new("new", 21)]).expect("save");
    writer.commit(100).expect("commit");
    open(&disk)
        .expect("open")
        .check(&mut |_| {})
        .expect("sound");
}

#[test]
fn rewind_to_the_first_and_to_the_newest_header() {
    let disk = disk(1);
    let mut writer = create(&disk);
    let states = five_commits(&mut writer);
    let now = writer.header().clone();
    writer.rewind(&now).expect("rewind");
    assert!(!writer.has_changes());
    let empty = writer
        .rollback_point(Seqno(9))
        .expect("search")
        .expect("the first header");
    assert_eq!(empty.header().update_seqno(), Seqno(0));
    save(&mut writer, &[Doc::new("x", 60)]).expect("save");
    let refused = writer.rewind(empty.header());
    assert!(matches!(
        refused,
        Err(Error::Refused(InvalidBatch::Uncommitted))
    ));
    writer.give_up();
    writer.rewind(empty.header()).expect("rewind");
    writer.give_up();
    assert!(!writer.has_changes());
    assert_eq!(by_id(&writer.snapshot()).expect("scan"), states[4]);
    writer.rewind(empty.header()).expect("rewind");
    writer.commit(1).expect("commit");
    assert_eq!(by_id(&open(&disk).expect("open")).expect("scan"), []);
}

#[test]
fn rewind_to_a_header_of_another_file_is_rejected() {
    let (one, two) = (disk(1), disk(2));
    let mut writer = create(&one);
    five_commits(&mut writer);
    let mut other = create(&two);
    save(&mut other, &[Doc::new("a", 1)]).expect("save");
    other.commit(77).expect("commit");
    assert!(
        writer
            .rewind(other.header())
            .expect_err("not ours")
            .is_damage()
    );
}

#[test]
fn writer_can_rewind_to_its_own_snapshots() {
    // A writer's own headers used to have more fields than those that it read, in versions without a pointer to the
    // previous one, so they did not look like headers of its file.
    for version in [Version::V13, Version::V14] {
        let disk = disk(1);
        let new = CreateOptions {
            version,
            encryption: None,
        };
        let mut writer = Writer::create(&disk, path(), &new, &Options::default()).expect("create");
        let first = writer.snapshot();
        save(&mut writer, &[Doc::new("a", 1)]).expect("save");
        writer.commit(1).expect("commit");
        let second = writer.snapshot();
        assert_eq!(second.header(), open(&disk).expect("open").header());
        save(&mut writer, &[Doc::new("b", 2)]).expect("save");
        writer.commit(2).expect("commit");
        for snapshot in [second, first] {
            writer.rewind(snapshot.header()).expect("rewind");
            writer.commit(3).expect("commit");
            assert_eq!(by_id(&writer.snapshot()).ok(), by_id(&snapshot).ok());
        }
    }
}
