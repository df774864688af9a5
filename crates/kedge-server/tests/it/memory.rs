//! Tests of a bucket that is short of memory, and of compressed values.

use std::time::{Duration, Instant};

use kedge_bucket::CompressionMode;
use kedge_disk::Rng;
use kedge_protocol::binary::{Feature, Opcode};
use kedge_types::{Datatype, Status};

use crate::client::SDK_FEATURES;
use crate::server::{Kedge, PASSWORD, Setup, USER};
use crate::stats::stat;

/// Random letters.
fn noise(seed: u32) -> Vec<u8> {
    let bytes = Rng::new(seed.into()).bytes(10_000);
    bytes.iter().map(|byte| b'a' + byte % 26).collect()
}

#[test]
fn writes_wait_for_eviction_instead_of_failing() {
    let mut setup = Setup::default();
    setup.bucket.quota_bytes = 2 << 20;
    // Nothing is applied unless memory is short.
    setup.bucket.apply_max_lag_ms = 3_600_000;
    let kedge = Kedge::with(setup);
    let writes = 300;
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let mut client = kedge.client();
            scope.spawn(move || {
                for n in 0..writes {
                    client.set(&format!("{thread}-{n}"), &noise(n)).ok();
                }
            });
        }
        let mut text = kedge.text();
        for n in 0..writes {
            let value = String::from_utf8(noise(n)).unwrap();
            let set = format!("set text-{n} 0 0 {}\r\n{value}\r\n", value.len());
            text.expect(&set, "STORED\r\n");
        }
    });
    let mut client = kedge.client();
    let stats = stat(&mut client, "").unwrap();
    assert_eq!(stats["curr_items"], (3 * writes).to_string());
    assert_eq!(stats["ep_tmp_oom_errors"], "0");
    for n in 0..writes {
        for writer in ["0", "1", "text"] {
            let got = client.get(&format!("{writer}-{n}")).ok();
            assert!(got.value == noise(n), "{writer}-{n}");
        }
    }
}

#[test]
fn values_compressed_by_the_bucket_are_inflated_without_snappy() {
    let mut setup = Setup::default();
    setup.bucket.compression = CompressionMode::Active;
    setup.bucket.apply_max_lag_ms = 1;
    let kedge = Kedge::with(setup);
    let mut client = kedge.client();
    let json = format!("{{\"text\":\"{}\"}}", "abc".repeat(400));
    let cas = client.set("k", json.as_bytes()).ok().cas;
    let started = Instant::now();
    while stat(&mut client, "").unwrap()["ep_item_compressor_num_compressed"] != "1" {
        assert!(started.elapsed() < Duration::from_secs(60));
        std::thread::yield_now();
    }
    let both = Datatype::JSON.union(Datatype::SNAPPY);
    let packed = client.get("k").ok();
    assert_eq!((packed.datatype, packed.cas), (both.bits(), cas));
    let inflated = snap::raw::Decoder::new().decompress_vec(&packed.value);
    assert_eq!(inflated.unwrap(), json.as_bytes());
    assert!(packed.value.len() < 200);
    let mut plain = kedge.connect();
    let without = SDK_FEATURES.without(Feature::SnappyEverywhere);
    plain.hello(without.without(Feature::Snappy));
    plain.log_in(USER, PASSWORD);
    plain.select("default");
    let got = plain.get("k").ok();
    assert_eq!(
        (got.datatype, got.text()),
        (Datatype::JSON.bits(), json.clone())
    );
    let got = kedge.bare().get("k").ok();
    assert_eq!((got.datatype, got.text()), (0, json.clone()));
    let len = json.len();
    let expected = format!("VALUE k 0 {len}\r\n{json}\r\nEND\r\n");
    kedge.text().expect("get k\r\n", &expected);
    kedge
        .text()
        .expect("mg k s v\r\n", &format!("VA {len} s{len}\r\n{json}\r\n"));
    // GET_LOCKED and GAT return it inflated, too; APPEND works on the inflated value.
    let frame = plain.request(Opcode::GetLocked).key("k");
    let locked = plain.call(&frame).ok();
    assert_eq!(locked.text(), json);
    let frame = plain.request(Opcode::UnlockKey).key("k").cas(locked.cas);
    assert_eq!(plain.call(&frame).status, Status::Success);
    let frame = plain.request(Opcode::Gat).key("k").extras(&[0, 0, 1, 0]);
    assert_eq!(plain.call(&frame).ok().text(), json);
    let frame = plain.request(Opcode::Append).key("k").value(b" ");
    plain.call(&frame).ok();
    assert_eq!(plain.get("k").ok().text(), format!("{json} "));
}
