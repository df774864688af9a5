//! Couchstore files with any damage: opening one is an error or gives something that can be walked, checked, written
//! to and opened again, in both modes, and never a panic.
//!
//! The input is the file, so golden files are seeds. When its first byte is one that no file begins with, the rest is a
//! list of patches (offset, bits to flip) to a sound file, and where to cut it.
#![no_main]

use std::sync::OnceLock;

use kedge_couchstore::{ContentMeta, Mutation, MutationBody, OnDamage, Options, Snapshot, Writer};
use kedge_disk::{SimDisk, read_file};
use kedge_types::{RevSeqno, Seqno};
use libfuzzer_sys::fuzz_target;

#[path = "support/couchstore.rs"]
mod support;

use support::{ask_everything, disk_with, options, path};

/// Begins a list of patches: blocks begin with 0, 1 or 2.
const PATCHES: u8 = 0xff;
const PATCH_BYTES: usize = 4;

fn mutation<'a>(key: &'a [u8], seqno: u64, body: &'a [u8]) -> Mutation<'a> {
    Mutation {
        key,
        seqno: Seqno(seqno),
        rev: RevSeqno(1),
        deleted: seqno % 5 == 0,
        content_meta: ContentMeta(0),
        rev_meta: &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1],
        body: MutationBody::Compress(body),
    }
}

/// Three commits of 40 documents with local documents.
fn sound_file() -> &'static [u8] {
    static SOUND: OnceLock<Vec<u8>> = OnceLock::new();
    SOUND.get_or_init(|| {
        let disk: SimDisk = disk_with(b"");
        let mut writer = Writer::open(&disk, path(), &Options::default()).expect("an empty file");
        for commit in 0..3_u64 {
            let keys: Vec<String> = (0..40)
                .map(|n| format!("\0key-{}", n * (commit + 1)))
                .collect();
            let seqnos = commit * 40 + 1..;
            let batch: Vec<Mutation<'_>> = keys
                .iter()
                .zip(seqnos)
                .map(|(key, seqno)| mutation(key.as_bytes(), seqno, b"{\"a\":[1,2,3,4,5,6]}"))
                .collect();
            writer.save(&batch, &mut |_| {}).expect("save");
            let state: &[u8] = b"{\"state\":\"active\",\"max_cas\":\"1\",\"snap_start\":\"0\",\
                \"snap_end\":\"0\",\"max_deleted_seqno\":\"0\"}";
            let locals: [(&[u8], Option<&[u8]>); 2] = [
                (b"_local/vbstate", Some(state)),
                (b"|0x0|", Some(b"\x01\x02\x03")),
            ];
            writer.save_locals(&locals).expect("save");
            writer.commit(commit).expect("commit");
        }
        read_file(&disk, path()).expect("the file")
    })
}

fn patched(patches: &[u8]) -> Vec<u8> {
    let mut bytes = sound_file().to_vec();
    for patch in patches.chunks_exact(PATCH_BYTES) {
        let offset = usize::from(u16::from_le_bytes([patch[0], patch[1]]));
        match patch[3] {
            0 => bytes.truncate(offset),
            bits => {
                if let Some(byte) = bytes.get_mut(offset) {
                    *byte ^= bits;
                }
            }
        }
    }
    bytes
}

fuzz_target!(|input: &[u8]| {
    let bytes = match input.split_first() {
        Some((&PATCHES, patches)) => patched(patches),
        _ => input.to_vec(),
    };
    for mode in [OnDamage::Refuse, OnDamage::Recover] {
        let disk = disk_with(&bytes);
        let Ok(snapshot) = Snapshot::open(&disk, path(), &options(mode)) else {
            continue;
        };
        let mut commits = 0;
        for older in snapshot.history().map_while(Result::ok) {
            ask_everything(&older);
            commits += 1;
        }
        assert!(commits > 0 && commits <= bytes.len() / 4096 + 1);
        append(&disk, mode);
    }
});

/// Writes to the file, if its trees let one.
fn append(disk: &SimDisk, mode: OnDamage) {
    let Ok(mut writer) = Writer::open(disk, path(), &options(mode)) else {
        return;
    };
    let Some(seqno) = writer.update_seqno().get().checked_add(1) else {
        return;
    };
    if writer
        .save(&[mutation(b"\0one more", seqno, b"1")], &mut |_| {})
        .is_err()
    {
        return;
    }
    writer
        .commit(7)
        .expect("what could be saved can be committed");
    drop(writer);
    let options = options(OnDamage::Refuse);
    let again = Snapshot::open(disk, path(), &options).expect("what was committed is found");
    let entry = again
        .get(b"\0one more")
        .expect("sound")
        .expect("it was saved");
    assert_eq!(entry.seqno(), Seqno(seqno));
}
