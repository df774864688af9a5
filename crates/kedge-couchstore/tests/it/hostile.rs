//! Hostile bytes cause an error or give the right data, never a panic, an endless walk or more memory than the file
//! justifies.

use kedge_couchstore::{BodyForm, Error, OnDamage, Options, Snapshot, Writer};
use kedge_types::Seqno;

use crate::support::{Doc, by_id, create, disk, disk_with, golden, path, save};
use kedge_disk::{Rng, seed};

const SAMPLES: [&str; 6] = [
    "s10_json.couch.1",
    "s1k_10commits_compacted.couch.2",
    "s200_v11_legacycrc.couch.1",
    "s200_v12.couch.1",
    "s200_v13.couch.1",
    "s200_encrypted_testkey.couch.1",
];

/// Performs every operation on a file. Every entry read has to be among `right`, if it is sound.
fn try_all(bytes: &[u8], on_damage: OnDamage, right: &[Vec<Doc>]) -> Result<(), Error> {
    let disk = disk_with(bytes);
    let options = Options {
        on_damage,
        ..Options::default()
    };
    let snapshot = Snapshot::open(&disk, path(), &options)?;
    let _ = snapshot.get(b"\0key-000005");
    let _ = snapshot.get_many(&[&b"\0key-000005"[..], b"a", b"\xff"]);
    let _ = snapshot.get_by_seqno(Seqno(3));
    let _ = snapshot.count_seqnos(Seqno(2)..Seqno(7));
    let _ = snapshot
        .locals()
        .map(|locals| locals.filter(Result::is_ok).count());
    let seqnos = snapshot.scan_seqnos(..).and_then(|scan| {
        let mut count = 0;
        for document in scan.with_bodies(BodyForm::Plain) {
            document?;
            count += 1;
        }
        Ok(count)
    });
    let history = snapshot.history().take_while(Result::is_ok).count();
    assert!(history as u64 <= bytes.len() as u64 / 4096 + 1);
    let writer = Writer::open(&disk, path(), &options).and_then(|mut writer| {
        save(&mut writer, &[Doc::new("\0key-000005", 1 << 40)])?;
        writer.commit(1)?;
        Ok(())
    });
    let docs = by_id(&snapshot)?;
    assert!(right.contains(&docs), "wrong data without an error");
    assert!(seqnos? <= docs.len());
    let _ = writer;
    let _ = snapshot.check(&mut |_| {});
    Ok(())
}

/// Returns all states of a sound file, newest first.
fn states(bytes: &[u8]) -> Vec<Vec<Doc>> {
    let disk = disk_with(bytes);
    match Snapshot::open(&disk, path(), &Options::default()) {
        Ok(snapshot) => snapshot
            .history()
            .map(|found| by_id(&found.expect("a header")).expect("documents"))
            .collect(),
        Err(Error::KeyNeeded { .. }) => Vec::new(),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn flipped_bits_and_truncation_are_errors_or_harmless() {
    let mut rng = Rng::new(seed(1));
    for name in SAMPLES {
        let bytes = golden(name);
        let right = states(&bytes);
        let mut errors = 0;
        for round in 0..400 {
            let mut damaged = bytes.clone();
            match round % 4 {
                0 => damaged.truncate(rng.below(bytes.len() as u64) as usize),
                1 => {
                    // Headers and roots are few bytes among many, so hit them often.
                    let block = rng.below(bytes.len() as u64 / 4096 + 1) * 4096;
                    let at = (block + rng.below(110)).min(bytes.len() as u64 - 1) as usize;
                    damaged[at] ^= 1 << rng.below(8);
                }
                _ => {
                    let at = rng.below(bytes.len() as u64) as usize;
                    damaged[at] ^= 1 << rng.below(8);
                }
            }
            for on_damage in [OnDamage::Refuse, OnDamage::Recover] {
                errors += u32::from(try_all(&damaged, on_damage, &right).is_err());
            }
        }
        assert!(errors > 100, "{name}: {errors}");
    }
}

#[test]
fn flip_of_every_bit_of_a_small_file() {
    let bytes = golden("s10_json.couch.1");
    let right = states(&bytes);
    for bit in 0..8 * bytes.len() {
        // Between the trees and the header there is nothing.
        if (8 * 0x620..8 * 4096).contains(&bit) && bit % 64 != 0 {
            continue;
        }
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let _ = try_all(&damaged, OnDamage::Recover, &right);
    }
}

#[test]
fn random_bytes_are_rejected() {
    let mut rng = Rng::new(seed(2));
    for len in [1, 2, 9, 48, 4095, 4096, 4097, 20_000] {
        for _ in 0..20 {
            let bytes = rng.bytes(len);
            let result = try_all(&bytes, OnDamage::Recover, &[Vec::new()]);
            assert!(result.is_err() || len >= 48);
        }
    }
}

/// Files whose nodes are changed with correct checksums, which flipped bits cannot produce.
mod doctored {
    use super::*;

    /// Changes the plain text of each node of a file in turn with `change`, corrects the checksum, and performs every
    /// operation.
    fn each_node(change: impl Fn(&mut Vec<u8>, &mut Rng) -> bool) -> u32 {
        let disk = disk(1);
        let mut writer = create(&disk);
        let docs: Vec<Doc> = (0..120)
            .map(|n| Doc {
                body: None,
                compress: false,
                ..Doc::new(format!("key-{n:06}"), 1 + n)
            })
            .collect();
        save(&mut writer, &docs).expect("save");
        writer.commit(1).expect("commit");
        let bytes = kedge_disk::read_file(&disk, path()).expect("read");
        let mut rng = Rng::new(seed(3));
        let mut errors = 0;
        for (at, len) in chunks(&bytes) {
            let node = snap::raw::Decoder::new()
                .decompress_vec(&bytes[at + 8..at + 8 + len])
                .expect("all chunks are nodes");
            for _ in 0..120 {
                let mut node = node.clone();
                if !change(&mut node, &mut rng) {
                    continue;
                }
                let packed = snap::raw::Encoder::new()
                    .compress_vec(&node)
                    .expect("snappy");
                if packed.len() > len {
                    continue;
                }
                let mut damaged = bytes.clone();
                damaged[at..at + 4]
                    .copy_from_slice(&(packed.len() as u32 | 0x8000_0000).to_be_bytes());
                damaged[at + 4..at + 8].copy_from_slice(&crc32c::crc32c(&packed).to_be_bytes());
                damaged[at + 8..at + 8 + packed.len()].copy_from_slice(&packed);
                errors += u32::from(reads(&damaged).is_err());
            }
        }
        errors
    }

    /// Returns the chunks of the first block after the first header, which no type byte interrupts.
    fn chunks(bytes: &[u8]) -> Vec<(usize, usize)> {
        let mut chunks = Vec::new();
        let mut at = 48;
        while at + 8 < 4096 && bytes[at] & 0x80 != 0 {
            let len = u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four")) & 0x7fff_ffff;
            if at + 8 + len as usize >= 4096 {
                break;
            }
            chunks.push((at, len as usize));
            at += 8 + len as usize;
        }
        assert!(chunks.len() > 10, "{}", chunks.len());
        chunks
    }

    /// Performs every read; the contents are those that the author of the file chose.
    fn reads(bytes: &[u8]) -> Result<(), Error> {
        let disk = disk_with(bytes);
        let snapshot = Snapshot::open(&disk, path(), &Options::default())?;
        for key in 0..120 {
            snapshot.get(format!("key-{key:06}").as_bytes())?;
        }
        let mut writer = Writer::open(&disk, path(), &Options::default())?;
        let more: Vec<Doc> = (0..120)
            .map(|n| Doc::new(format!("key-{n:06}"), 1000 + n))
            .collect();
        let saved = save(&mut writer, &more);
        snapshot.count_seqnos(Seqno(20)..Seqno(90))?;
        let ids = snapshot.scan_ids(..)?.with_bodies(BodyForm::Plain);
        for document in ids.take(10_000) {
            document?;
        }
        for entry in snapshot.scan_seqnos(..)?.take(10_000) {
            entry?;
        }
        saved?;
        snapshot.check(&mut |_| {}).map(|_| ())
    }

    #[test]
    fn change_of_any_byte_of_a_node() {
        let errors = each_node(|node, rng| {
            let at = rng.below(node.len() as u64) as usize;
            node[at] = rng.next() as u8;
            true
        });
        assert!(errors > 50, "{errors}");
    }

    #[test]
    fn truncated_and_empty_nodes() {
        let errors = each_node(|node, rng| {
            node.truncate(rng.below(node.len() as u64) as usize);
            true
        });
        assert!(errors > 50, "{errors}");
    }

    #[test]
    fn cyclic_and_shared_children() {
        let errors = each_node(|node, rng| {
            if node[0] != 0 {
                return false;
            }
            // The last entry's child: at the node itself, anywhere, or the first entry's again.
            let value = node.len() - if node[10..16].contains(&b'k') { 30 } else { 19 };
            let offset = rng.below(4200);
            node[value..value + 6].copy_from_slice(&offset.to_be_bytes()[2..]);
            true
        });
        assert!(errors > 5, "{errors}");
    }
}
