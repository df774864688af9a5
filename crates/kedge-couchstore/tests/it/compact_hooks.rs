//! Compaction hooks: decisions, notifications, and stops.

use std::ops::ControlFlow;
use std::path::Path;

use kedge_couchstore::compact::{
    CompactionHooks, CopyProgress, FilterDecision, KeepAll, LocalPatch,
};
use kedge_couchstore::{Entry, Error, InvalidBatch, OldVersion};
use kedge_disk::Disk;
use kedge_types::Seqno;

use crate::compact::{compact, content, history, open_target, source, target, tiny};
use crate::support::{Doc, create, disk, path, save};

#[test]
fn filter_decides_and_purged_tombstones_raise_the_purge_seqno() {
    let (disk, source) = source(8);
    let before = content(&source);
    let newest = before.update_seqno;
    let mut filter = |entry: &Entry, _: Option<&[u8]>| match entry.seqno().0 % 5 {
        0 => FilterDecision::Drop,
        1 if entry.is_deleted() => FilterDecision::Purge,
        _ => FilterDecision::Keep,
    };
    let compaction = compact(&disk, &source, &tiny(), &mut filter).expect("compact");
    let progress = compaction.finish().expect("finish");
    let purges = |doc: &&Doc| doc.seqno % 5 == 1 && doc.deleted;
    let purged: Vec<u64> = before
        .docs
        .iter()
        .filter(purges)
        .map(|doc| doc.seqno)
        .collect();
    let mut expected = before.clone();
    expected
        .docs
        .retain(|doc| doc.seqno % 5 != 0 && !purges(&doc));
    expected.purge_seqno = Seqno(*purged.last().expect("some were purged"));
    assert_eq!(content(&open_target(&disk)), expected);
    assert_eq!(progress.purged, purged.len() as u64);
    assert_eq!(
        progress.dropped,
        (before.docs.len() - expected.docs.len()) as u64
    );
    assert_eq!(expected.update_seqno, newest);
}

#[test]
fn newest_entry_is_never_purged() {
    let (disk, source) = source(3);
    let before = content(&source);
    let mut all = |_: &Entry, _: Option<&[u8]>| FilterDecision::Purge;
    let compaction = compact(&disk, &source, &tiny(), &mut all).expect("compact");
    compaction.finish().expect("finish");
    let after = content(&open_target(&disk));
    let (newest, others) = before.docs.split_last().expect("documents");
    assert_eq!(after.docs, std::slice::from_ref(newest));
    let highest = others.last().expect("more").seqno;
    assert_eq!(after.purge_seqno, Seqno(highest));
    disk.remove(target()).expect("remove");

    let mut all = |_: &Entry, _: Option<&[u8]>| FilterDecision::Drop;
    let compaction = compact(&disk, &source, &tiny(), &mut all).expect("compact");
    compaction.finish().expect("finish");
    let after = content(&open_target(&disk));
    assert_eq!(after.docs, []);
    assert_eq!(after.purge_seqno, before.purge_seqno);
    assert_eq!(after.update_seqno, before.update_seqno);
    assert_eq!(after.locals, before.locals);
}

#[test]
fn filter_receives_requested_bodies() {
    let (disk, source) = source(4);
    let before = content(&source);
    let mut seen = Vec::new();
    let mut filter = |entry: &Entry, body: Option<&[u8]>| match body {
        None => FilterDecision::NeedBody,
        Some(body) => {
            seen.push((entry.seqno().0, body.to_vec()));
            match body.first() {
                Some(7) => FilterDecision::Drop,
                // A second request keeps the entry.
                Some(9) => FilterDecision::NeedBody,
                _ => FilterDecision::Keep,
            }
        }
    };
    let compaction = compact(&disk, &source, &tiny(), &mut filter).expect("compact");
    compaction.finish().expect("finish");
    let bodies: Vec<_> = before
        .docs
        .iter()
        .map(|doc| (doc.seqno, doc.body.clone().unwrap_or_default()))
        .collect();
    assert_eq!(seen, bodies);
    let mut expected = before.docs;
    expected.retain(|doc| {
        doc.body
            .as_ref()
            .is_none_or(|body| body.first() != Some(&7))
    });
    assert_eq!(content(&open_target(&disk)).docs, expected);
}

/// Changes local documents, and counts notifications.
#[derive(Default)]
struct Patch {
    changes: Vec<(&'static [u8], Option<Vec<u8>>)>,
    copied: u64,
    copied_bytes: u64,
    replaced: u64,
}

impl CompactionHooks for Patch {
    fn copied(&mut self, _: &Entry, disk_bytes: u32, replaced: Option<OldVersion<'_>>) {
        self.copied += 1;
        self.copied_bytes += u64::from(disk_bytes);
        self.replaced += u64::from(replaced.is_some());
    }

    fn locals(&mut self, locals: &mut LocalPatch) -> Result<(), Error> {
        for (name, value) in &self.changes {
            match value {
                Some(value) => locals.set(name, value.clone()),
                None => locals.remove(name),
            }
            assert_eq!(&locals.get(name)?, value);
        }
        let missing = locals.get(b"_local/none such")?;
        assert_eq!(missing, None);
        Ok(())
    }
}

#[test]
fn local_documents_are_those_of_the_source_with_current_changes() {
    let disk = disk(1);
    let mut writer = create(&disk);
    history(&mut writer, 4);
    let large = vec![5; 100_000];
    writer
        .save_locals(&[(b"_local/large", Some(&large))])
        .expect("save");
    writer.commit(50).expect("commit");
    let source = writer.snapshot();
    let mut patch = Patch {
        changes: vec![
            (b"_local/vbstate", Some(b"other".to_vec())),
            (b"_local/1", None),
            (b"_local/zzz", Some(b"new".to_vec())),
            (b"A", Some(Vec::new())),
        ],
        ..Patch::default()
    };
    let mut compaction = compact(&disk, &source, &tiny(), &mut patch).expect("compact");
    let local = |name: &[u8]| open_target(&disk).local(name).expect("a local document");
    assert_eq!(local(b"_local/vbstate").as_deref(), Some(&b"other"[..]));
    assert_eq!(local(b"_local/1"), None);
    assert_eq!(local(b"_local/zzz").as_deref(), Some(&b"new"[..]));
    assert_eq!(local(b"A").as_deref(), Some(&b""[..]));
    assert_eq!(local(b"_local/large"), Some(large));
    assert_eq!(content(&open_target(&disk)).locals.len(), 7);
    assert_eq!(
        patch.copied,
        source.header().live_count() + source.header().deleted_count()
    );
    assert_eq!(patch.copied_bytes, open_target(&disk).header().body_bytes());
    assert_eq!(patch.replaced, 0);

    // Changes and removals in the source arrive, and changes that are not repeated are gone.
    writer
        .save_locals(&[(b"_local/large", None), (b"_local/2", Some(b"changed"))])
        .expect("save");
    save(
        &mut writer,
        &[Doc::new("key-00037", 9000), Doc::new("quite new", 9001)],
    )
    .expect("save");
    writer.commit(51).expect("commit");
    let mut patch = Patch {
        changes: vec![(b"_local/zzz", Some(b"newer".to_vec()))],
        ..Patch::default()
    };
    compaction
        .catch_up(&writer.snapshot(), &mut patch)
        .expect("catch up");
    let mut expected = content(&writer.snapshot());
    expected
        .locals
        .push((b"_local/zzz".to_vec(), b"newer".to_vec()));
    assert_eq!(content(&open_target(&disk)), expected);
    assert_eq!((patch.copied, patch.replaced), (2, 1));

    let mut patch = Patch {
        changes: vec![(b"", Some(Vec::new()))],
        ..Patch::default()
    };
    history(&mut writer, 1);
    let error = compaction
        .catch_up(&writer.snapshot(), &mut patch)
        .expect_err("no name");
    assert!(matches!(error, Error::Refused(InvalidBatch::KeyLength(0))));
    let error = compaction.finish().expect_err("it failed");
    assert!(matches!(error, Error::PreviousIo { .. }));
    assert!(!disk.exists(target()).expect("exists"));
}

/// Stops after a number of bytes, or at one entry.
struct Stop {
    bytes: u64,
    seqno: Option<Seqno>,
}

impl CompactionHooks for Stop {
    fn filter(&mut self, entry: &Entry, _: Option<&[u8]>) -> FilterDecision {
        if Some(entry.seqno()) == self.seqno {
            return FilterDecision::Stop;
        }
        FilterDecision::Keep
    }

    fn pace(&mut self, bytes: u64, _: &CopyProgress) -> ControlFlow<()> {
        match self.bytes.checked_sub(bytes) {
            Some(left) => {
                self.bytes = left;
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(()),
        }
    }
}

#[test]
fn stopped_compaction_leaves_nothing() {
    let (disk, source) = source(12);
    let before = kedge_disk::read_file(&disk, path()).expect("read");
    let mut stops: Vec<Stop> = Vec::new();
    for bytes in (0..).step_by(100_000) {
        let mut all = Stop { bytes, seqno: None };
        let result = compact(&disk, &source, &tiny(), &mut all);
        if result.is_ok() {
            assert!(bytes > 500_000, "there was something to stop: {bytes}");
            break;
        }
        stops.push(Stop { bytes, seqno: None });
    }
    let seqnos = content(&source).docs;
    for doc in [&seqnos[0], &seqnos[100], &seqnos[seqnos.len() - 1]] {
        stops.push(Stop {
            bytes: u64::MAX,
            seqno: Some(Seqno(doc.seqno)),
        });
    }
    for mut stop in stops {
        let error = compact(&disk, &source, &tiny(), &mut stop).expect_err("it is stopped");
        assert!(matches!(error, Error::Stopped), "{error}");
        assert_eq!(disk.list(Path::new("/data")).expect("list"), ["0.couch.1"]);
    }
    assert_eq!(kedge_disk::read_file(&disk, path()).expect("read"), before);
    let unfinished = compact(&disk, &source, &tiny(), &mut KeepAll).expect("compact");
    assert!(disk.exists(target()).expect("exists"));
    drop(unfinished);
    assert!(!disk.exists(target()).expect("exists"));
}
