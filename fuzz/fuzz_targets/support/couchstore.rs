//! What the targets about couchstore files share: files in memory, and all that can be asked of one.

use std::ops::ControlFlow;
use std::path::Path;

use kedge_couchstore::kv::{DiskKey, EntryMeta, FileAudit};
use kedge_couchstore::{
    BodyForm, CheckObserver, Document, Entry, Error, Offset, OnDamage, Options, Snapshot, TreeKind,
};
use kedge_disk::{Disk, SimDisk};
use kedge_types::Seqno;

pub fn path() -> &'static Path {
    Path::new("/data/0.couch.1")
}

/// A disk on which the file has these bytes.
pub fn disk_with(bytes: &[u8]) -> SimDisk {
    let disk = SimDisk::new(1);
    disk.create_dir_all(Path::new("/data")).expect("create");
    let file = disk.create(path()).expect("create");
    file.write_at(bytes, 0).expect("write");
    disk
}

pub fn options(on_damage: OnDamage) -> Options {
    Options {
        on_damage,
        cache_bytes_max: 64 << 10,
        cache_leaves: false,
        ..Options::default()
    }
}

/// Goes on behind damage, counts it, and shows all documents to an audit.
struct Watch {
    damages: usize,
    entries: u64,
    audit: FileAudit,
}

impl CheckObserver for Watch {
    fn progress(&mut self, entries: u64) {
        self.entries += entries;
    }

    fn damage(&mut self, _: Error) -> ControlFlow<()> {
        self.damages += 1;
        ControlFlow::Continue(())
    }

    fn document(&mut self, _: Offset, entry: &Entry, body: Option<&[u8]>) {
        let _ = self.audit.document(entry, body);
    }

    fn local(&mut self, _: Offset, name: &[u8], value: &[u8]) {
        let _ = self.audit.local(name, value);
    }
}

/// Asks everything that can be asked. What a check says is sound has to be consistent.
pub fn ask_everything(snapshot: &Snapshot) {
    let header = snapshot.header();
    let mut watch = Watch {
        damages: 0,
        entries: 0,
        audit: FileAudit::new(header.update_seqno()),
    };
    let checked = snapshot.check_all(&mut watch).expect("the disk works");
    let _ = watch.audit.disagreements();
    assert_eq!(snapshot.check(&mut |_| {}).is_ok(), watch.damages == 0);

    let salvaged = salvage(snapshot);
    let by_id = entries(snapshot.scan_ids(..));
    let by_seqno = entries(snapshot.scan_seqnos(..));
    for tree in [TreeKind::ById, TreeKind::BySeqno, TreeKind::Local] {
        for node in snapshot.nodes_of(tree).map_while(Result::ok) {
            assert!(node.items().count() > 0);
        }
    }
    let locals = snapshot
        .locals()
        .map(|all| all.map_while(Result::ok).count());
    let _ = snapshot.count_seqnos(Seqno(2)..Seqno(9));
    let _ = snapshot.get_many_documents(&[&b"\0a"[..], b"b", b"\xff"], BodyForm::Stored);
    if watch.damages > 0 {
        return;
    }
    // From here on everything has to be as a sound file's.
    let (by_id, by_seqno) = (by_id.expect("sound"), by_seqno.expect("sound"));
    assert_eq!(
        by_id.len() as u64,
        header.live_count() + header.deleted_count()
    );
    assert_eq!((by_id.len(), by_id.len()), (by_seqno.len(), salvaged.len()));
    assert_eq!(watch.entries, 2 * by_id.len() as u64);
    assert_eq!(locals.expect("sound") as u64, checked.locals);
    let count = snapshot.count_seqnos(..).expect("sound");
    assert_eq!(count, by_id.len() as u64);
    for entry in by_id.iter().take(50) {
        let found = snapshot.get_by_seqno(entry.seqno()).expect("sound");
        assert_eq!(found.as_ref(), Some(entry));
        let found = snapshot.get(entry.key()).expect("sound");
        assert_eq!(found.as_ref(), Some(entry));
        let meta = EntryMeta::decode(entry.is_deleted(), entry.content_meta(), entry.rev_meta());
        if let (Ok(meta), Ok(key)) = (meta, DiskKey::decode(entry.key())) {
            let _ = meta.meaning(&key);
        }
    }
}

fn entries(
    scan: Result<impl Iterator<Item = Result<Entry, Error>>, Error>,
) -> Result<Vec<Entry>, Error> {
    scan?.collect()
}

fn salvage(snapshot: &Snapshot) -> Vec<Document> {
    let Ok(scan) = snapshot.scan_seqnos(..) else {
        return Vec::new();
    };
    let documents = scan.past_damage().with_bodies(BodyForm::Plain);
    documents.filter_map(Result::ok).collect()
}
