//! Tests of statistics of disk operations.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use kedge_disk::{
    Disk, DiskCall, DiskError, DiskObserver, Fault, ObservedDisk, Operation, Rng, SimDisk,
};
use kedge_types::Status;
use parking_lot::{Condvar, Mutex};
use serde_json::Value;

use crate::client::Client;
use crate::evicted::{evict_all, start, until};
use crate::replication::bucket;
use crate::server::{Kedge, Setup};
use crate::stats::stat;

/// A gate that delays syncs.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    is_shut: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    pub(crate) fn set(&self, shut: bool) {
        *self.is_shut.lock() = shut;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut is_shut = self.is_shut.lock();
        self.changed.wait_while(&mut is_shut, |is_shut| *is_shut);
    }
}

/// Syncs of files wait at it.
impl DiskObserver for Gate {
    fn around<R>(
        &self,
        asked: &DiskCall<'_>,
        run: impl FnOnce() -> Result<R, DiskError>,
    ) -> Result<R, DiskError> {
        if asked.operation == Operation::Sync {
            self.pass();
        }
        run()
    }
}

/// Pending and slow reads, then writes.
fn slowness(client: &mut Client, seconds: u64) -> [u64; 4] {
    let all = stat(client, &format!("disk-slowness {seconds}")).unwrap();
    let number = |name: &str| all[&format!("pending_disk_{name}")].parse().unwrap();
    ["read_num", "read_slow_num", "write_num", "write_slow_num"].map(number)
}

#[test]
fn pending_disk_operations_are_counted() {
    let gate = Arc::new(Gate::default());
    let sim = Arc::new(SimDisk::new(1));
    let kedge = Kedge::with(Setup {
        disk: Arc::new(ObservedDisk::new(sim, Arc::clone(&gate))),
        ..Setup::default()
    });
    let mut client = kedge.client();
    let bucket = bucket(&kedge);
    bucket.persistence().apply().unwrap();
    until("nothing is pending", || slowness(&mut client, 0) == [0; 4]);
    gate.set(true);
    client.set("k", b"v").ok();
    std::thread::scope(|scope| {
        let syncing = scope.spawn(|| bucket.persistence().sync());
        // Other tasks may sync, too.
        until("a sync is pending", || {
            let [_, _, writes, slow] = slowness(&mut client, 0);
            writes >= 1 && slow == writes
        });
        let [_, slow_reads, writes, slow] = slowness(&mut client, 1_000_000);
        assert!(writes >= 1 && slow == 0 && slow_reads == 0);
        gate.set(false);
        syncing.join().unwrap().unwrap();
    });
    until("nothing is pending", || slowness(&mut client, 0) == [0; 4]);
    for group in ["disk-slowness", "disk-slowness x"] {
        assert_eq!(stat(&mut client, group), Err(Status::Invalid), "{group}");
    }
}

fn failures(client: &mut Client) -> [String; 2] {
    let all = stat(client, "disk-failures").unwrap();
    assert_eq!(all.len(), 2);
    ["ep_data_read_failed", "ep_data_write_failed"].map(|name| all[name].clone())
}

#[test]
fn failed_disk_operations_are_counted() {
    let disk = SimDisk::new(1);
    let mut setup = Setup {
        disk: Arc::new(disk.clone()),
        ..Setup::default()
    };
    setup.bucket.log_interval_ms = 3_600_000;
    let kedge = Kedge::with(setup);
    let bucket = bucket(&kedge);
    let mut client = kedge.client();
    // The middle of the value is in a block of its own.
    client.set("k", &Rng::new(1).bytes(30_000)).ok();
    evict_all(&bucket);
    assert_eq!(failures(&mut client), ["0", "0"]);
    let bucket_dir = Path::new("/data/buckets/default");
    for file in disk.list(bucket_dir).unwrap() {
        if file.contains(".couch.") {
            disk.make_unreadable(&bucket_dir.join(file), 20_000);
        }
    }
    assert_eq!(client.get("k").status, Status::Internal);
    assert_eq!(failures(&mut client), ["1", "0"]);
    client.set("k", b"more").ok();
    disk.fail_next(Operation::Write, Fault::NoSpace);
    bucket.persistence().sync().unwrap_err();
    assert_eq!(failures(&mut client), ["1", "1"]);
    until("there is room", || bucket.persistence().sync().is_ok());
}

#[test]
fn kvtimings_record_file_operations() {
    let (kedge, bucket) = start(kedge_bucket::EvictionPolicy::FullEviction, 256 << 20);
    let mut client = kedge.client();
    let mut totals = || -> HashMap<String, u64> {
        let rows = stat(&mut client, "kvtimings").unwrap();
        let total = |json: &String| {
            let json: Value = serde_json::from_str(json).unwrap();
            json["total"].as_u64().unwrap()
        };
        rows.iter()
            .map(|(name, json)| (name.clone(), total(json)))
            .collect()
    };
    let before = totals();
    let only_names = before.keys().all(|name| name == "rw_0:fsSyncTime");
    assert!(only_names, "no file yet: {before:?}");
    let mut writer = kedge.client();
    writer.set("k", b"value").ok();
    evict_all(&bucket);
    writer.get("k").ok();
    let after = totals();
    let of = |name: &str| after.get(&format!("rw_0:{name}")).copied().unwrap_or(0);
    assert_eq!((of("readTime"), of("compact")), (1, 0), "{after:?}");
    assert!(
        of("commit") >= 1 && of("commit") == of("saveDocCount"),
        "{after:?}"
    );
    assert!(of("fsWriteTime") >= 1 && of("fsWriteTime") == of("fsWriteSize"));
    assert!(of("fsReadTime") == of("fsReadSize"));
    assert!(of("fsSyncTime") >= 2 * of("commit"), "{after:?}");
}
