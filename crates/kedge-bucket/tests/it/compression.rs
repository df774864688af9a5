//! Values that the bucket compresses in memory, and values that clients send compressed.

use crate::tools::*;
use kedge_bucket::{BucketChange, CompressionMode, Cookie, MinRatio, Read, StoreMode, Write};
use kedge_disk::{Rng, SimDisk};
use kedge_types::{Datatype, Status};

fn mode(compression: CompressionMode) -> BucketChange {
    BucketChange {
        compression: Some(compression),
        ..BucketChange::default()
    }
}

fn text(n: u32) -> Vec<u8> {
    format!("{{\"number\":{n},\"text\":\"{}\"}}", "abc".repeat(300)).into_bytes()
}

/// Returns a value of which a part is compressible.
fn mixed(random_bytes: usize) -> Vec<u8> {
    let mut value = Rng::new(1).bytes(random_bytes);
    value.resize(1_000, 0);
    value
}

fn inflated(value: &[u8]) -> Vec<u8> {
    snap::raw::Decoder::new().decompress_vec(value).unwrap()
}

impl Open {
    /// Returns the value as it is stored, and its datatype.
    fn kept(&self, name: &str) -> (Vec<u8>, Datatype) {
        let k = key(name);
        let shown = self
            .bucket
            .documents()
            .get(self.ctx(), &read(&k), |document| {
                (document.item.value().to_vec(), document.item.datatype())
            });
        done(shown).unwrap()
    }

    fn is_compressed(&self, name: &str) -> bool {
        self.kept(name).1.contains(Datatype::SNAPPY)
    }

    fn compressor(&self) -> [u64; 3] {
        ["num_visited", "num_compressed", "saved_bytes"]
            .map(|name| self.figure(&format!("ep_item_compressor_{name}")))
    }
}

#[test]
fn active_compression_compresses_values_that_have_been_applied_to_files() {
    for commit_log in [true, false] {
        let mut site = sim(&SimDisk::new(1));
        site.config.commit_log = commit_log;
        site.config.compression = CompressionMode::Active;
        let (open, steps) = site.open_with_manual_tasks();
        steps.pass(SEC * 5);
        let at_rest = open.runs("item_compressor");
        for n in 0..300 {
            open.set(&format!("key-{n}"), &text(n)).unwrap();
        }
        open.set("noise", &mixed(1_000)).unwrap();
        open.set("short", b"aaaaaaaaaaaaaaaaaaaa").unwrap();
        assert_eq!(open.runs("item_compressor"), at_rest, "not at once");
        assert_eq!(open.compressor(), [0; 3]);
        steps.pass(SEC * 9);
        if commit_log {
            assert_eq!(open.compressor(), [0; 3], "the files have nothing yet");
        }
        open.bucket.persistence().apply().unwrap();
        let before = open.figure("mem_used");
        steps.pass(SEC * 5);
        let [visited, compressed, saved] = open.compressor();
        assert_eq!((visited, compressed), (301, 300));
        assert!(saved > 300 * 600, "{saved} bytes");
        if commit_log {
            assert_eq!(open.figure("mem_used"), before - saved);
        }
        for n in 0..300 {
            let (value, datatype) = open.kept(&format!("key-{n}"));
            assert_eq!(datatype, Datatype::JSON.union(Datatype::SNAPPY));
            assert_eq!(inflated(&value), text(n));
        }
        assert!(!open.is_compressed("noise") && !open.is_compressed("short"));
        let runs = open.runs("item_compressor");
        steps.pass(SEC * 3_600);
        assert_eq!(open.runs("item_compressor"), runs, "each is tried once");
        open.bucket.shutdown();
    }
}

#[test]
fn evicted_value_is_compressed_again_after_it_is_fetched() {
    let mut site = sim(&SimDisk::new(2));
    site.config.compression = CompressionMode::Active;
    let (open, steps) = site.open_with_manual_tasks();
    open.set("key", &text(1)).unwrap();
    open.bucket.persistence().apply().unwrap();
    steps.pass(SEC * 2);
    assert!(open.is_compressed("key"));
    let quota = |quota_bytes| BucketChange {
        quota_bytes: Some(quota_bytes),
        ..BucketChange::default()
    };
    open.bucket.update(&quota(1)).unwrap();
    steps.pass(SEC);
    assert_eq!(open.figure("ep_num_non_resident"), 1);
    open.bucket.update(&quota(1 << 30)).unwrap();
    let k = key("key");
    let wanted = Read {
        cookie: Cookie(1),
        ..read(&k)
    };
    let outcome = open.bucket.documents().get(open.ctx(), &wanted, |_| ());
    assert_eq!(outcome, Ok(kedge_bucket::Outcome::Parked));
    steps.run();
    let (value, datatype) = open.kept("key");
    assert_eq!(
        (value, datatype),
        (text(1), Datatype::JSON),
        "as on the disk"
    );
    steps.pass(SEC * 2);
    assert!(open.is_compressed("key"));
    assert_eq!(open.compressor()[1], 2);
    // A new value must be applied to the files first.
    open.set("key", &text(2)).unwrap();
    steps.pass(SEC * 2);
    assert!(!open.is_compressed("key"));
    steps.pass(SEC * 10);
    assert_eq!(inflated(&open.kept("key").0), text(2));
    open.bucket.shutdown();
}

#[test]
fn compression_mode_can_change_at_runtime() {
    let (open, steps) = sim(&SimDisk::new(3)).open_with_manual_tasks();
    let applied = |name: &str| {
        open.set(name, &text(1)).unwrap();
        open.bucket.persistence().apply().unwrap();
        steps.pass(SEC * 5);
    };
    applied("a");
    assert!(!open.is_compressed("a"), "passive is the default");
    open.bucket.update(&mode(CompressionMode::Active)).unwrap();
    steps.pass(SEC);
    assert!(open.is_compressed("a"));
    open.bucket.update(&mode(CompressionMode::Off)).unwrap();
    applied("b");
    assert!(open.is_compressed("a") && !open.is_compressed("b"));
    let runs = open.runs("item_compressor");
    applied("c");
    assert_eq!(open.runs("item_compressor"), runs);
    open.bucket.shutdown();
}

#[test]
fn minimum_compression_ratio_decides_which_values_stay_compressed() {
    let mut site = sim(&SimDisk::new(4));
    site.config.compression = CompressionMode::Active;
    let (open, steps) = site.open_with_manual_tasks();
    let ratio = |ratio| BucketChange {
        min_compression_ratio: Some(MinRatio::new(ratio).unwrap()),
        ..BucketChange::default()
    };
    // Compression saves about half of it.
    let value = mixed(450);
    let packed = snap::raw::Encoder::new().compress_vec(&value).unwrap();
    let sent = |name: &str| {
        let k = key(name);
        let (mode, snappy) = (StoreMode::Set, Datatype::SNAPPY);
        let write: Write<'_> = write(&k);
        let stored = (open.bucket).documents().store(
            open.ctx(),
            &write,
            &kedge_bucket::StoreArgs {
                mode,
                value: &packed,
                datatype: snappy,
                flags: 0,
                expiry: 0,
            },
        );
        done(stored).unwrap();
        open.is_compressed(name)
    };
    for (min, worth_it) in [(1.8, true), (2.5, false)] {
        open.bucket.update(&ratio(min)).unwrap();
        assert_eq!(sent("sent"), worth_it, "{min}");
        open.set("plain", &value).unwrap();
        open.bucket.persistence().apply().unwrap();
        steps.pass(SEC * 2);
        assert_eq!(open.is_compressed("plain"), worth_it, "{min}");
    }
    open.bucket.update(&ratio(1.0)).unwrap();
    open.bucket.update(&mode(CompressionMode::Off)).unwrap();
    assert!(!sent("sent"));
    let k = key("sent");
    let (raw, wrong) = (Datatype::SNAPPY, b"no snappy at all");
    let refused = (open.bucket).documents().store(
        open.ctx(),
        &write(&k),
        &kedge_bucket::StoreArgs {
            mode: StoreMode::Set,
            value: wrong,
            datatype: raw,
            flags: 0,
            expiry: 0,
        },
    );
    assert_eq!(refused.map(drop), Err(Status::Invalid));
    let mut stats = String::new();
    open.bucket
        .stats(&mut |name, value| stats += &format!("{name}={value};"));
    assert!(stats.contains("ep_compression_mode=off;ep_min_compression_ratio=1;"));
    open.bucket.shutdown();
}
