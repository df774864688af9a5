//! Compactions of a file that is written to at every opportunity, and catch-up.

use std::ops::ControlFlow;

use kedge_couchstore::compact::{
    Compaction, CompactionHooks, CompactionSettings, CopyProgress, FilterDecision, KeepAll,
};
use kedge_couchstore::{
    CreateOptions, Entry, Error, InvalidBatch, Options, Snapshot, Version, Writer,
};
use kedge_disk::{Disk, Rng, SimDisk, seed};
use kedge_types::Seqno;

use crate::compact::{compact, content, history, open_target, target, tiny};
use crate::support::{Doc, create, disk, path, save};

/// A writer that continues whenever it is called.
struct Source {
    rng: Rng,
    writer: Writer,
    commits: u64,
}

impl Source {
    fn commit(&mut self) {
        let start = self.writer.update_seqno().0;
        let count = [1, 5, 100][self.rng.below(3) as usize];
        let mut keys: Vec<u64> = (0..count).map(|_| self.rng.below(900)).collect();
        keys.sort_unstable();
        keys.dedup();
        let docs: Vec<Doc> = keys
            .into_iter()
            .zip(start + 1 + self.rng.below(3)..)
            .map(|(key, seqno)| Doc {
                deleted: self.rng.below(4) == 0,
                body: (self.rng.below(9) > 0).then(|| vec![1; self.rng.below(3000) as usize]),
                compress: false,
                ..Doc::new(format!("key-{key:05}"), seqno)
            })
            .collect();
        save(&mut self.writer, &docs).expect("save");
        let name = format!("_local/{}", self.rng.below(20)).into_bytes();
        let value = (self.rng.below(4) > 0).then(|| start.to_string().into_bytes());
        self.writer
            .save_locals(&[(&name, value.as_deref())])
            .expect("save");
        if self.rng.below(5) == 0 {
            self.writer.set_purge_seqno(Seqno(start / 2));
        }
        if self.rng.below(5) == 0 {
            // As if the highest seqno belonged to an entry that is not stored.
            let seqno = Seqno(self.writer.update_seqno().0 + 7);
            self.writer.raise_update_seqno(seqno);
        }
        self.commits += 1;
        self.writer.commit(self.commits).expect("commit");
    }
}

/// Lets the source continue between the steps of a compaction, for a while.
struct Busy<'a> {
    source: &'a mut Source,
    left: u64,
}

impl Busy<'_> {
    fn step(&mut self, one_in: u64) {
        if self.left > 0 && self.source.rng.below(one_in) == 0 {
            self.left -= 1;
            self.source.commit();
        }
    }
}

impl CompactionHooks for Busy<'_> {
    fn filter(&mut self, _: &Entry, _: Option<&[u8]>) -> FilterDecision {
        self.step(40);
        FilterDecision::Keep
    }

    fn pace(&mut self, _: u64, _: &CopyProgress) -> ControlFlow<()> {
        self.step(2);
        ControlFlow::Continue(())
    }
}

#[test]
fn target_catches_up_with_a_growing_source() {
    let first = seed(300);
    for seed in first..first + 20 {
        println!("seed {seed}");
        let disk = disk(seed);
        let create = CreateOptions {
            version: [Version::V13, Version::V14][(seed % 2) as usize],
            encryption: None,
        };
        let writer = Writer::create(&disk, path(), &create, &Options::default());
        let mut source = Source {
            rng: Rng::new(seed),
            writer: writer.expect("create"),
            commits: 0,
        };
        for _ in 0..20 {
            source.commit();
        }
        let settings = CompactionSettings {
            create,
            memory_bytes: [1, 50_000, 16 << 20][source.rng.below(3) as usize],
            ..CompactionSettings::default()
        };
        let from = source.writer.snapshot();
        let as_copied = content(&from);
        let left = source.rng.below(30);
        let mut busy = Busy {
            source: &mut source,
            left,
        };
        let mut compaction = compact(&disk, &from, &settings, &mut busy).expect("compact");
        assert_eq!(content(&open_target(&disk)), as_copied, "the main pass");
        let mut commits = 1;
        for _ in 0..6 {
            let to = source.writer.snapshot();
            let is_new = to.header().offset() > compaction.source().offset();
            let expected = content(&to);
            let left = source.rng.below(6);
            let mut busy = Busy {
                source: &mut source,
                left,
            };
            let caught_up = compaction.catch_up(&to, &mut busy).expect("catch up");
            commits += u64::from(is_new);
            assert_eq!(caught_up.source_bytes > 0, is_new);
            assert_eq!(compaction.source(), to.header());
            // The source never lowers the purge seqno.
            let mut found = content(&open_target(&disk));
            assert!(found.purge_seqno >= expected.purge_seqno);
            found.purge_seqno = expected.purge_seqno;
            assert_eq!(found, expected);
        }
        // Nothing new: no commit.
        let to = source.writer.snapshot();
        compaction.catch_up(&to, &mut KeepAll).expect("catch up");
        commits += u64::from(open_target(&disk).history().count() as u64 > commits);
        compaction.catch_up(&to, &mut KeepAll).expect("catch up");
        compaction.finish().expect("finish");
        assert_eq!(open_target(&disk).history().count() as u64, commits);
    }
}

fn begun(disk: &SimDisk) -> (Writer, Compaction) {
    let mut writer = create(disk);
    history(&mut writer, 3);
    let compaction = compact(disk, &writer.snapshot(), &tiny(), &mut KeepAll).expect("compact");
    (writer, compaction)
}

fn refused(disk: &SimDisk, compaction: Compaction, newest: &Snapshot) {
    let mut compaction = compaction;
    let error = compaction
        .catch_up(newest, &mut KeepAll)
        .expect_err("it does not follow");
    assert!(
        matches!(error, Error::Refused(InvalidBatch::NotNewer)),
        "{error}"
    );
    let error = compaction
        .catch_up(newest, &mut KeepAll)
        .expect_err("it failed before");
    assert!(matches!(error, Error::PreviousIo { .. }), "{error}");
    compaction.finish().expect_err("it failed before");
    assert!(!disk.exists(target()).expect("exists"));
}

#[test]
fn catch_up_rejects_a_state_that_is_not_newer() {
    // An older one.
    let disk1 = disk(1);
    let (writer, compaction) = begun(&disk1);
    let older = writer.snapshot().older().expect("older").expect("there");
    refused(&disk1, compaction, &older);

    // After a rollback, even if the file has passed the seqno since.
    let disk2 = disk(2);
    let (mut writer, compaction) = begun(&disk2);
    let older = writer.snapshot().older().expect("older").expect("there");
    writer.rewind(older.header()).expect("rewind");
    writer.commit(1).expect("commit");
    history(&mut writer, 2);
    refused(&disk2, compaction, &writer.snapshot());

    // The same in a version without pointers to previous headers: one of them has a lower seqno.
    let disk13 = disk(13);
    let new = CreateOptions {
        version: Version::V13,
        encryption: None,
    };
    let mut writer = Writer::create(&disk13, path(), &new, &Options::default()).expect("create");
    history(&mut writer, 3);
    let older = writer.snapshot().older().expect("older").expect("there");
    let compaction = compact(&disk13, &writer.snapshot(), &tiny(), &mut KeepAll).expect("compact");
    writer.rewind(older.header()).expect("rewind");
    writer.commit(1).expect("commit");
    history(&mut writer, 2);
    refused(&disk13, compaction, &writer.snapshot());

    // After a rollback with new documents in the same commit, which shows only in the header's pointer.
    let disk3 = disk(3);
    let (mut writer, compaction) = begun(&disk3);
    let older = writer.snapshot().older().expect("older").expect("there");
    writer.rewind(older.header()).expect("rewind");
    save(&mut writer, &[Doc::new("other", 100_000)]).expect("save");
    writer.commit(1).expect("commit");
    refused(&disk3, compaction, &writer.snapshot());

    // Another file.
    let disk4 = disk(4);
    let (_, compaction) = begun(&disk4);
    let other = disk(5);
    let mut writer = create(&other);
    save(&mut writer, &[Doc::new("first", 1)]).expect("save");
    history(&mut writer, 4);
    save(&mut writer, &[Doc::new("other", 100_000)]).expect("save");
    writer.commit(1).expect("commit");
    refused(&disk4, compaction, &writer.snapshot());
}

#[test]
fn catch_up_is_paced_and_can_be_stopped() {
    struct Stop;
    impl CompactionHooks for Stop {
        fn pace(&mut self, _: u64, _: &CopyProgress) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }
    let disk = disk(1);
    let (mut writer, mut compaction) = begun(&disk);
    history(&mut writer, 3);
    let error = compaction
        .catch_up(&writer.snapshot(), &mut Stop)
        .expect_err("it is stopped");
    assert!(matches!(error, Error::Stopped), "{error}");
    drop(compaction);
    assert!(!disk.exists(target()).expect("exists"));
}

#[test]
fn catch_up_keeps_the_purge_seqno() {
    let disk = disk(1);
    let mut writer = create(&disk);
    history(&mut writer, 3);
    let mut filter = |entry: &Entry, _: Option<&[u8]>| match entry.is_deleted() {
        true => FilterDecision::Purge,
        false => FilterDecision::Keep,
    };
    let compaction = compact(&disk, &writer.snapshot(), &tiny(), &mut filter);
    let mut compaction = compaction.expect("compact");
    let purged = open_target(&disk).header().purge_seqno();
    assert!(purged > Seqno(0));
    for (of_source, expected) in [(purged.0 - 1, purged.0), (purged.0 + 1, purged.0 + 1)] {
        history(&mut writer, 1);
        writer.set_purge_seqno(Seqno(of_source));
        writer.commit(1).expect("commit");
        compaction
            .catch_up(&writer.snapshot(), &mut filter)
            .expect("catch up");
        let found = content(&open_target(&disk));
        assert_eq!(found.purge_seqno, Seqno(expected));
        // The filter is not called for new entries.
        assert!(found.docs.last().expect("documents").deleted);
    }
}

#[test]
fn catch_up_batches_fit_into_memory() {
    #[derive(Default)]
    struct Largest(u64);
    impl CompactionHooks for Largest {
        fn pace(&mut self, bytes: u64, _: &CopyProgress) -> ControlFlow<()> {
            self.0 = self.0.max(bytes);
            ControlFlow::Continue(())
        }
    }
    let disk = disk(1);
    let (mut writer, mut compaction) = begun(&disk);
    let start = writer.update_seqno().0;
    let docs: Vec<Doc> = (1..=600)
        .map(|n| Doc {
            body: Some(vec![1; 5000]),
            compress: false,
            ..Doc::new(format!("key-{n:05}"), start + n)
        })
        .collect();
    save(&mut writer, &docs).expect("save");
    writer.commit(1).expect("commit");
    let mut largest = Largest::default();
    let caught_up = compaction.catch_up(&writer.snapshot(), &mut largest);
    assert_eq!(caught_up.expect("catch up").entries, 600);
    // 3 MB of bodies: each write is announced with its whole size.
    assert!(largest.0 <= 256 << 10, "{}", largest.0);
    assert_eq!(content(&open_target(&disk)), content(&writer.snapshot()));
}
