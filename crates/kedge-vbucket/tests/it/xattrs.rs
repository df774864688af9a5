//! Tests of extended attributes: commands that keep them, and tombstones with attributes in memory, log and file.

use crate::disk::{Disk, WHOLE};
use crate::tools::*;
use kedge_types::{
    Cas, Datatype, Expiry, Now, RevSeqno, Seqno, Status, VbUuid, XattrsBuf, split_xattrs,
};
use kedge_vbucket::{
    Change, ConcatMode, ConflictRule, CounterOp, Deletion, Eviction, Fetched, Item, ItemMeta,
    MinRatio, NewValue, PageOut, Patches, Received, StateChange, StepOutcome, StoreMode, VBucket,
    ValueParts, VbState, WithMetaArgs,
};

const BOTH: [(&str, &str); 2] = [("_sync", "1"), ("user", "2")];
const SYSTEM: [(&str, &str); 1] = [("_sync", "1")];

pub(crate) fn section(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut all = XattrsBuf::default();
    for (name, value) in pairs {
        all.set(name.as_bytes(), value.as_bytes());
    }
    all.section()
}

/// Creates an active vBucket with a document that has this key and body, attributes, and an expiry after 100 seconds.
fn with_xattrs(name: &str, body: &[u8]) -> VBucket {
    let mut vb = replica();
    let meta = ItemMeta {
        cas: Cas(1 << 16),
        seqno: Seqno(1),
        rev: RevSeqno(1),
        expiry: Expiry(at(100).unix_secs() as u32),
        datatype: Datatype::XATTR,
        ..ItemMeta::default()
    };
    let item = Item::new(&meta, key(name).as_bytes(), &[&section(&BOTH), body]);
    vb.begin_snapshot(memory(1, 1)).unwrap();
    vb.receive(at(0), Received::Document(item)).unwrap();
    vb.set_state(StateChange {
        topology: Some(topology(&["a"])),
        ..StateChange::to(VbState::Active, VbUuid(0xabc))
    });
    vb
}

/// Returns the item of a key, which may be a tombstone.
fn there(vb: &VBucket, name: &str) -> Item {
    let key = key(name);
    let table = vb.table();
    let item = table.find(table.hash(key.as_bytes()), key.as_bytes());
    item.cloned().expect("it is in memory")
}

#[track_caller]
fn check(item: &Item, datatype: Datatype, pairs: &[(&str, &str)], body: &[u8]) {
    assert_eq!(item.datatype(), datatype);
    let parts = ValueParts::of(item).unwrap();
    assert_eq!(parts.section(), section(pairs));
    assert_eq!(parts.body(), body);
}

fn delete(vb: &mut VBucket, now: Now, name: &str) {
    done(vb.at(now).delete(&write(&key(name))).unwrap());
}

#[test]
fn xattrs_survive_changes_of_the_body() {
    let (json, both) = (Datatype::JSON, Datatype::XATTR.union(Datatype::JSON));
    let vb = &mut with_xattrs("k", b"5");
    let k = key("k");
    for (n, mode) in [StoreMode::Set, StoreMode::Replace].into_iter().enumerate() {
        let body = n.to_string().into_bytes();
        done(store(vb, at(0), &write(&k), mode, &body).unwrap());
        check(&there(vb, "k"), both, &BOTH, &body);
    }
    done(
        vb.at(at(0))
            .concat(&write(&k), ConcatMode::Append, b"2")
            .unwrap(),
    );
    check(&there(vb, "k"), both, &BOTH, b"12");
    done(
        vb.at(at(0))
            .concat(&write(&k), ConcatMode::Prepend, b"x")
            .unwrap(),
    );
    check(&there(vb, "k"), Datatype::XATTR, &BOTH, b"x12");
    set(vb, at(0), "k", b"7");
    let op = CounterOp {
        negative: false,
        delta: 3,
        initial: None,
        expiry: Expiry::NEVER,
    };
    let (_, number) = done(vb.at(at(0)).arithmetic(&write(&k), &op).unwrap());
    assert_eq!(number, 10);
    check(&there(vb, "k"), both, &BOTH, b"10");
    let expiry = Expiry(at(500).unix_secs() as u32);
    done(vb.at(at(0)).touch(&write(&k), expiry).unwrap());
    check(&there(vb, "k"), both, &BOTH, b"10");

    delete(vb, at(0), "k");
    check(&there(vb, "k"), Datatype::XATTR, &SYSTEM, b"");
    assert_eq!(get(vb, at(0), "k"), Err(Status::KeyNotFound));
    set(vb, at(0), "k", b"1");
    check(&there(vb, "k"), json, &[], b"1");
}

#[test]
fn expiry_tombstone_keeps_system_xattrs() {
    let vb = &mut with_xattrs("k", b"5");
    assert_eq!(get(vb, at(100), "k"), Err(Status::KeyNotFound));
    assert_eq!(vb.documents().expired(), 1);
    check(&there(vb, "k"), Datatype::XATTR, &SYSTEM, b"");
}

#[test]
fn sync_delete_keeps_system_xattrs() {
    let vb = &mut with_xattrs("k", b"5");
    let k = key("k");
    let durable = durable(&k, kedge_types::DurabilityLevel::PersistToMajority, 1);
    assert_eq!(vb.at(at(0)).delete(&durable), Ok(StepOutcome::Parked));
    let changes = log_all(vb);
    let Some(Change::Prepare(prepare)) = changes.last() else {
        panic!("{changes:?}")
    };
    check(prepare, Datatype::XATTR, &SYSTEM, b"");
    check(&there(vb, "k"), Datatype::XATTR, &SYSTEM, b"");
}

#[test]
fn xattrs_and_body_together_have_a_size_limit() {
    let vb = &mut with_xattrs("k", b"5");
    let limit = kedge_types::limits::VALUE_BYTES_MAX;
    let beside = section(&[("user", "2")]).len() - 4;
    for (bytes, result) in [
        (limit - beside, Ok(())),
        (limit - beside + 1, Err(Status::TooBig)),
    ] {
        let outcome = store(
            vb,
            at(0),
            &write(&key("k")),
            StoreMode::Set,
            &vec![b'x'; bytes],
        );
        assert_eq!(outcome.map(drop), result, "{bytes}");
    }
}

fn page_out(vb: &mut VBucket, eviction: Eviction) {
    let how = PageOut {
        eviction,
        frequency_max: u8::MAX,
        bytes: usize::MAX,
        decay: false,
    };
    for shard in 0..vb.table().shard_count() {
        vb.at(at(0)).page_out(shard, &how);
    }
}

/// Passes the file's version of a key to the vBucket.
fn fetch(vb: &mut VBucket, disk: &Disk, name: &str) {
    let ticket = vb.store().fetch_ticket();
    let key = key(name);
    let documents = &disk.file().expect("there is a file").documents;
    let stored = documents.values().find(|item| item.key() == key.as_bytes());
    assert_eq!(
        vb.store_mut()
            .fetched(ticket, key.as_bytes(), stored.cloned()),
        Fetched::Known
    );
}

#[test]
fn write_with_meta_stores_xattrs_of_documents_and_deletions() {
    let given = |rev, deleted| WithMetaArgs {
        cas: Cas(at(0).unix_ns),
        rev: RevSeqno(rev),
        flags: 0,
        expiry: Expiry::NEVER,
        deleted,
        only_new: false,
        new_cas: false,
        rule: Some(ConflictRule::MostChanges),
    };
    let never = MinRatio::NEVER;
    let brought = [("_mou", "{}"), ("mine", "3")];
    let vb = &mut active(&["a"]);
    let k = key("k");
    let none = Patches::default();
    let value = [section(&brought), b"7".to_vec()].concat();
    let value = NewValue::check_whole(&value, Datatype::XATTR, never).unwrap();
    let outcome = vb
        .at(at(0))
        .write_with_meta(&write(&k), &given(9, None), &value, &none);
    done(outcome.unwrap());
    let both = Datatype::XATTR.union(Datatype::JSON);
    check(&there(vb, "k"), both, &brought, b"7");
    set(vb, at(0), "k", b"8");
    check(&there(vb, "k"), both, &brought, b"8");

    let left = section(&BOTH);
    let left = NewValue::check_deletion(&left, Datatype::XATTR).unwrap();
    let deleted = given(20, Some(Deletion::Explicit));
    let outcome = vb
        .at(at(0))
        .write_with_meta(&write(&k), &deleted, &left, &none);
    done(outcome.unwrap());
    check(&there(vb, "k"), Datatype::XATTR, &BOTH, b"");
    assert_eq!(get(vb, at(0), "k"), Err(Status::KeyNotFound));
    let mut disk = Disk::default();
    disk.log(vb, usize::MAX);
    let mut replayed = disk.recover(vbucket(), None);
    check(&there(&replayed, "k"), Datatype::XATTR, &BOTH, b"");
    disk.apply(&mut replayed, WHOLE);
    let file = disk.file().expect("there is a file");
    let stored: Vec<&Item> = file.documents.values().collect();
    check(stored[0], Datatype::XATTR, &BOTH, b"");
}

#[test]
fn patches_write_cas_and_seqno_into_xattrs() {
    let zero = "\"0x0000000000000000\"";
    let text = [("_v", zero), ("seqno", zero)];
    let value = [section(&text), b"{}".to_vec()].concat();
    let value = NewValue::check_whole(&value, Datatype::XATTR, MinRatio::NEVER).unwrap();
    // The section length, then for each attribute a length, the name, a zero byte and a quote.
    let first = 4 + 4 + 2 + 1 + 1;
    let patches = Patches {
        cas: vec![first],
        seqno: vec![first + 18 + 1 + 1 + 4 + 5 + 1 + 1],
    };
    assert_eq!(patches.check(&value.bytes), Ok(()));
    let vb = &mut active(&["a"]);
    let k = key("k");
    set(vb, at(0), "k", b"1");
    let given = WithMetaArgs {
        cas: Cas(0),
        rev: RevSeqno(1),
        flags: 0,
        expiry: Expiry::NEVER,
        deleted: None,
        only_new: false,
        new_cas: true,
        rule: Some(ConflictRule::LastWrite),
    };
    let outcome = vb
        .at(at(1))
        .write_with_meta(&write(&k), &given, &value, &patches);
    let mutated = done(outcome.expect("its CAS is the later one"));
    let cas = format!("\"{:#018x}\"", mutated.cas.get().swap_bytes());
    let seqno = format!("\"{:#018x}\"", mutated.seqno.get());
    let expected = [("_v", cas.as_str()), ("seqno", seqno.as_str())];
    let both = Datatype::XATTR.union(Datatype::JSON);
    check(&there(vb, "k"), both, &expected, b"{}");
}

#[test]
fn write_that_keeps_xattrs_fetches_them_from_disk() {
    for eviction in [Eviction::ValueOnly, Eviction::Full] {
        for expired in [false, true] {
            let mut vb = with_xattrs("k", b"5");
            let mut disk = Disk::default();
            disk.log(&mut vb, usize::MAX);
            disk.apply(&mut vb, WHOLE);
            page_out(&mut vb, eviction);
            let (k, now) = (key("k"), at(if expired { 100 } else { 0 }));
            if expired {
                assert_eq!(vb.at(now).get_meta(&k), Ok(StepOutcome::Fetch));
                fetch(&mut vb, &disk, "k");
                assert!(meta(&mut vb, now, &k).deleted);
            } else {
                let outcome = store(&mut vb, now, &write(&k), StoreMode::Set, b"new");
                assert_eq!(outcome, Ok(StepOutcome::Fetch), "{eviction:?}");
                assert_eq!(vb.at(now).delete(&write(&k)), Ok(StepOutcome::Fetch));
                fetch(&mut vb, &disk, "k");
                set(&mut vb, now, "k", b"new");
                check(&there(&vb, "k"), Datatype::XATTR, &BOTH, b"new");
                delete(&mut vb, now, "k");
            }
            check(&there(&vb, "k"), Datatype::XATTR, &SYSTEM, b"");
        }
    }
}

#[test]
fn sweep_keeps_an_expired_document_with_xattrs_on_disk() {
    let mut vb = with_xattrs("k", b"5");
    let mut disk = Disk::default();
    disk.log(&mut vb, usize::MAX);
    disk.apply(&mut vb, WHOLE);
    page_out(&mut vb, Eviction::ValueOnly);
    for shard in 0..vb.table().shard_count() {
        vb.at(at(100)).sweep(shard);
    }
    assert_eq!(
        (vb.documents().expired(), there(&vb, "k").is_deleted()),
        (0, false)
    );
    assert_eq!(get(&mut vb, at(100), "k"), Err(Status::KeyNotFound));
    assert_eq!(
        vb.at(at(100)).delete(&write(&key("k"))),
        Err(Status::KeyNotFound)
    );
}

#[test]
fn tombstone_with_xattrs_is_recovered_from_log_and_file() {
    let mut vb = with_xattrs("k", b"5");
    delete(&mut vb, at(0), "k");
    let mut disk = Disk::default();
    disk.log(&mut vb, usize::MAX);
    let mut replayed = disk.recover(vbucket(), None);
    check(&there(&replayed, "k"), Datatype::XATTR, &SYSTEM, b"");
    disk.apply(&mut replayed, WHOLE);
    let file = disk.file().expect("there is a file");
    assert!(file.state.may_have_xattrs);
    let stored: Vec<&Item> = file.documents.values().collect();
    check(stored[0], Datatype::XATTR, &SYSTEM, b"");
    assert!(split_xattrs(stored[0].value()).is_ok());

    // Metadata alone must not be taken for a tombstone without attributes.
    let (meta, stored_key) = (stored[0].meta(), stored[0].key().to_vec());
    let mut cold = disk.recover_cold(vbucket(), None);
    assert_eq!(
        store(
            &mut cold,
            at(0),
            &write(&key("other")),
            StoreMode::Set,
            b"1"
        ),
        Ok(StepOutcome::Fetch),
        "it may have attributes"
    );
    let history = cold.history_id();
    assert!(
        cold.store_mut()
            .warm_without_value(history, &meta, &stored_key)
    );
    assert!(!there(&cold, "k").is_resident());
    assert_eq!(cold.table().without_value(), 0, "of live documents");
    fetch(&mut cold, &disk, "k");
    check(&there(&cold, "k"), Datatype::XATTR, &SYSTEM, b"");
    cold.store_mut().warmed(history, true);
    page_out(&mut cold, Eviction::ValueOnly);
    assert!(!there(&cold, "k").is_resident());
}
