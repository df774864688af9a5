//! Audits of the golden files, and of files that contradict themselves.

use kedge_couchstore::kv::{
    CollectionStats, DROPPED_COLLECTIONS_NAME, Disagreement, DiskKey, DroppedCollection,
    DroppedCollections, EntryMeta, FileAudit, KvError, StoredSystemEvent, SystemEventKind,
    VBSTATE_NAME, ValueMeta, VbStateDocument, VbStateKind,
};
use kedge_couchstore::{BodyForm, Mutation, MutationBody, Options, Snapshot};
use kedge_disk::PosixDisk;
use kedge_types::{Cas, CollectionId, Datatype, DurabilityLevel, Expiry, RevSeqno, Seqno};

use crate::support::{create, disk, golden_path};

/// Audits a file. Returns the audit and the errors.
fn audit(snapshot: &Snapshot) -> (FileAudit, Vec<KvError>) {
    let mut audit = FileAudit::new(snapshot.header().update_seqno());
    let mut errors = Vec::new();
    for local in snapshot.locals().expect("a scan") {
        let (name, value) = local.expect("a local document");
        errors.extend(audit.local(&name, &value).err());
    }
    let documents = snapshot.scan_seqnos(..).expect("a scan");
    for document in documents.with_bodies(BodyForm::Plain) {
        let document = document.expect("a document");
        let body = document.body.as_deref();
        errors.extend(audit.document(&document.entry, body).err());
    }
    (audit, errors)
}

#[test]
fn golden_files_pass_the_audit() {
    for name in [
        "rich.couch.1",
        "s10_json.couch.1",
        "s1k_10commits.couch.1",
        "s1k_10commits_compacted.couch.2",
        "s200_v11_legacycrc.couch.1",
    ] {
        let options = Options::default();
        let newest = Snapshot::open(&PosixDisk, &golden_path(name), &options).expect("open");
        for snapshot in newest.history() {
            let snapshot = snapshot.expect("a header");
            let at = snapshot.header().offset();
            let (audit, errors) = audit(&snapshot);
            assert_eq!(errors, [], "{name} at {at}");
            // The program that wrote the first one did not maintain its statistics through deletions.
            if name != "rich.couch.1" {
                assert_eq!(audit.disagreements(), [], "{name} at {at}");
            }
        }
        assert!(audit(&newest).0.state().is_some(), "{name}");
    }
}

#[test]
fn audit_finds_incomplete_vbstate() {
    // The program that wrote this sample wrote only `{"state":"active"}`.
    let path = golden_path("s200_v12.couch.1");
    let snapshot = Snapshot::open(&PosixDisk, &path, &Options::default()).expect("open");
    let (audit, errors) = audit(&snapshot);
    assert!(
        matches!(errors[..], [KvError::VbState { .. }]),
        "{errors:?}"
    );
    assert!(audit.is_vbucket() && audit.state().is_none());
}

/// It used to count as damage, so an import rejected files of old releases.
#[test]
fn vbstate_without_max_cas_is_accepted_and_reported() {
    let mut audit = FileAudit::new(Seqno(7));
    let old = br#"{"max_deleted_seqno":"0","snap_start":"7","snap_end":"7","state":"active"}"#;
    audit.local(VBSTATE_NAME, old).expect("it is accepted");
    assert_eq!(audit.disagreements(), [Disagreement::NoMaxCas]);
    let state = audit.state().expect("a state");
    assert!(!state.has_max_cas);
    // Encoded states have one.
    let now = VbStateDocument::decode(&state.encode(), Seqno(7)).expect("sound");
    assert!(now.has_max_cas);
}

/// A document of a file that the test creates.
struct Doc {
    key: Vec<u8>,
    meta: EntryMeta,
    body: Vec<u8>,
}

fn key(prepared: bool, collection: u32, logical: &[u8]) -> Vec<u8> {
    let collection = CollectionId(collection);
    let key = DiskKey::Document {
        prepared,
        collection,
        logical,
    };
    key.encode()
}

fn live(collection: u32, logical: &[u8], datatype: Datatype, body: &[u8]) -> Doc {
    let value = ValueMeta {
        flags: [0; 4],
        datatype,
        bytes: body.len(),
    };
    Doc {
        key: key(false, collection, logical),
        meta: EntryMeta::live(Cas(1), Expiry(0), value),
        body: body.to_vec(),
    }
}

fn file(docs: &[Doc], locals: &[(Vec<u8>, Vec<u8>)]) -> Snapshot {
    let disk = disk(1);
    let mut writer = create(&disk);
    let rev_metas: Vec<_> = docs.iter().map(|doc| doc.meta.rev_meta.encode()).collect();
    let batch: Vec<Mutation<'_>> = docs
        .iter()
        .zip(&rev_metas)
        .zip(1..)
        .map(|((doc, rev_meta), seqno)| Mutation {
            key: &doc.key,
            seqno: Seqno(seqno),
            rev: RevSeqno(1),
            deleted: doc.meta.deleted,
            content_meta: doc.meta.content_meta,
            rev_meta: rev_meta.as_slice(),
            body: if doc.meta.content_meta.is_compressed() {
                MutationBody::Compress(&doc.body)
            } else {
                MutationBody::Stored(&doc.body)
            },
        })
        .collect();
    writer.save(&batch, &mut |_| {}).expect("save");
    let locals: Vec<_> = locals
        .iter()
        .map(|(name, value)| (&**name, Some(&**value)))
        .collect();
    writer.save_locals(&locals).expect("save");
    writer.commit(0).expect("commit");
    writer.snapshot()
}

fn stats(collection: u32, items: u64, high_seqno: u64) -> (Vec<u8>, Vec<u8>) {
    let stats = CollectionStats {
        items,
        high_seqno: Seqno(high_seqno),
        disk_bytes: None,
    };
    let name = CollectionStats::name(CollectionId(collection));
    (name.into_bytes(), stats.encode())
}

fn state(change: impl FnOnce(&mut VbStateDocument)) -> (Vec<u8>, Vec<u8>) {
    let mut state = VbStateDocument::new(VbStateKind::Replica);
    state.snap_end = Seqno(u64::MAX);
    change(&mut state);
    (VBSTATE_NAME.to_vec(), state.encode())
}

#[test]
fn audit_finds_contradictory_documents() {
    let event = SystemEventKind::Scope;
    let event_key = DiskKey::SystemEvent {
        kind: event,
        subject: 8,
    };
    let other_scope = StoredSystemEvent::ScopeDropped(kedge_couchstore::kv::ScopeDropped {
        scope: kedge_types::ScopeId(9),
        ..Default::default()
    });
    let event_body = other_scope.encode();
    let value = |expected| KvError::Value { expected };
    let entry = |expected| KvError::Entry { expected };
    let cases = [
        (
            live(0, b"a", Datatype::JSON, b"{"),
            value("JSON, as its datatype says"),
        ),
        (
            live(0, b"a", Datatype::SNAPPY, b"\xff\xff\xff\xff\xff"),
            value("sound Snappy data"),
        ),
        (
            live(0, b"a", Datatype::XATTR, b"{}"),
            value("the length of its attributes"),
        ),
        (
            Doc {
                key: b"\x03a".to_vec(),
                ..live(0, b"a", Datatype::RAW, b"v")
            },
            KvError::Key {
                expected: "a collection id other than 1 to 7",
            },
        ),
        (
            Doc {
                key: key(true, 0, b"a"),
                ..live(0, b"a", Datatype::RAW, b"v")
            },
            entry("metadata of 25 bytes under a prepare's key"),
        ),
        (
            Doc {
                key: event_key.encode(),
                meta: EntryMeta::event(Cas(1), event, Some(1), event_body.len()),
                body: event_body,
            },
            entry("the same subject in a system event's key and body"),
        ),
    ];
    for (doc, expected) in cases {
        let (_, errors) = audit(&file(&[doc], &[]));
        assert_eq!(errors, [expected]);
    }
}

#[test]
fn audit_compares_statistics_with_documents() {
    let docs = || {
        let meta = EntryMeta::prepare_delete(Cas(1), DurabilityLevel::Majority);
        let prepare = Doc {
            key: key(true, 0, b"p"),
            meta,
            body: Vec::new(),
        };
        vec![
            live(0, b"a", Datatype::JSON, b"1"),
            live(9, b"old", Datatype::RAW, b"of a dropped collection"),
            live(9, b"new", Datatype::RAW, b"of its successor"),
            prepare,
        ]
    };
    let dropped = DroppedCollections {
        entries: vec![DroppedCollection {
            start: Seqno(0),
            end: Seqno(2),
            collection: CollectionId(9),
        }],
    };
    let dropped = (DROPPED_COLLECTIONS_NAME.to_vec(), dropped.encode());
    let sound = state(|state| state.on_disk_prepares = 1);
    let locals = [dropped.clone(), stats(0, 1, 4), stats(9, 1, 3), sound];
    let (audit_, errors) = audit(&file(&docs(), &locals));
    assert_eq!((errors, audit_.disagreements()), (vec![], vec![]));

    let odd = state(|state| state.snap_end = Seqno(3));
    let locals = [dropped, stats(0, 2, 3), stats(9, 1, 100), odd];
    let (audit_, errors) = audit(&file(&docs(), &locals));
    assert_eq!(errors, []);
    assert_eq!(
        audit_.disagreements(),
        [
            Disagreement::Items {
                collection: CollectionId(0),
                stated: 2,
                found: 1
            },
            Disagreement::HighSeqno {
                collection: CollectionId(0),
                stated: Seqno(3),
                found: Seqno(4)
            },
            Disagreement::Prepares {
                stated: 0,
                found: 1
            },
            Disagreement::Snapshot {
                start: Seqno(0),
                end: Seqno(3),
                high_seqno: Seqno(4)
            },
        ]
    );
}
