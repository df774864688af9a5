//! Comparison with the sort of the standard library, with memory so small that many runs are merged in several steps.

use std::ops::ControlFlow;
use std::path::Path;

use kedge_disk::SimDisk;

use super::*;
use crate::compact::{CompactionHooks, CopyPhase, CopyProgress, KeepAll};

fn progress() -> CopyProgress {
    CopyProgress {
        phase: CopyPhase::Copy,
        entries_total: 0,
        entries: 0,
        kept: 0,
        dropped: 0,
        purged: 0,
        bytes_read: 0,
        bytes_written: 0,
    }
}

fn disk() -> SimDisk {
    let disk = SimDisk::new(1);
    disk.create_dir_all(Path::new("/data"))
        .expect("a directory");
    disk
}

fn sorter(disk: &SimDisk, memory_bytes: usize, is_secret: bool) -> Sorter {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Sorter::new(&disk, Path::new("/data/x"), memory_bytes, is_secret)
}

/// A multiplicative hash, which scatters numbers.
fn scatter(n: u32) -> u32 {
    n.wrapping_mul(0x9e37_79b1)
}

fn keys(count: u32) -> Vec<Vec<u8>> {
    let key = |n: u32| {
        let digits = scatter(n).to_string().into_bytes();
        // Long and short keys, keys with a common prefix, and prefixes of other keys.
        match n % 50 {
            0 => digits[..1 + n as usize % 3].to_vec(),
            1 => [&vec![b'7'; 900][..], &digits].concat(),
            _ => [b"key-", &*digits].concat(),
        }
    };
    (0..count).map(key).collect()
}

fn value(n: usize) -> Vec<u8> {
    vec![n as u8; if n.is_multiple_of(97) { 4000 } else { n % 40 }]
}

fn sorted(mut sorter: Sorter, keys: &[Vec<u8>]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (hooks, mut progress) = (&mut KeepAll, progress());
    let mut meter = ProgressMeter::new(hooks, &mut progress);
    for (n, key) in keys.iter().enumerate() {
        let value = value(n);
        sorter
            .push(key, value.len(), &mut meter, |out| {
                out.extend_from_slice(&value);
            })
            .expect("push");
    }
    let mut sorted = sorter.finish(&mut meter).expect("finish");
    let mut records = Vec::new();
    while let Some((key, value)) = sorted.next(&mut meter).expect("next") {
        records.push((key.to_vec(), value.to_vec()));
    }
    records
}

#[test]
fn records_are_sorted_by_key() {
    for (count, memory, is_secret) in [
        (0, 4 << 10, false),
        (1, 4 << 10, false),
        (3000, 4 << 10, false),
        (3000, 4 << 10, true),
        (3000, 64 << 10, false),
        (3000, 16 << 20, false),
    ] {
        let keys = keys(count);
        let mut expected: Vec<_> = keys
            .iter()
            .enumerate()
            .map(|(n, key)| (key.clone(), value(n)))
            .collect();
        let disk = disk();
        let mut records = sorted(sorter(&disk, memory, is_secret), &keys);
        assert!(
            records.is_sorted_by(|a, b| a.0 <= b.0),
            "{count} in {memory}"
        );
        // Equal keys may come in any order.
        records.sort_unstable();
        expected.sort_unstable();
        assert_eq!(records, expected, "{count} in {memory}");
        assert_eq!(disk.list(Path::new("/data")).expect("list"), [""; 0]);
    }
}

#[test]
fn presorted_and_reversed_keys_are_sorted() {
    let mut keys = keys(2000);
    keys.sort_unstable();
    for memory in [4 << 10, 16 << 20] {
        for _ in 0..2 {
            let records = sorted(sorter(&disk(), memory, false), &keys);
            assert!(records.is_sorted_by(|a, b| a.0 <= b.0));
            assert_eq!(records.len(), keys.len());
            keys.reverse();
        }
    }
}

#[test]
fn run_stays_within_its_memory_limit() {
    for memory in [4 << 10, 100_000, 16 << 20] {
        for value_bytes in [0, 41, 400] {
            let mut run = SortedRun::new(memory);
            let mut n = 0_u32;
            while run.has_room(record::bytes(&[0; 4], value_bytes)) {
                run.push(&scatter(n).to_be_bytes(), value_bytes, |value| {
                    value.resize(value.len() + value_bytes, 1);
                });
                n += 1;
            }
            let (bytes, records) = run.capacity();
            let all = bytes + records * size_of::<(u64, u32)>();
            assert!(all <= memory.max(8 << 10), "{all} of {memory}");
            // With typical key lengths no memory is wasted.
            let used = n as usize * (record::bytes(&[0; 4], value_bytes) + 16);
            assert!(
                value_bytes != 41 || used > memory * 3 / 4,
                "{used} of {memory}"
            );
        }
    }
}

#[test]
fn changed_temporary_file_is_detected() {
    for is_secret in [false, true] {
        let disk = disk();
        let file = disk.create(Path::new("/data/t")).expect("create");
        let mut spill = SpillFile::new(file, "/data/t".into(), is_secret, 512);
        let (hooks, mut progress) = (&mut KeepAll, progress());
        let mut meter = ProgressMeter::new(hooks, &mut progress);
        for n in 0..200_u8 {
            let mut out = Vec::new();
            record::put(&[n], 9, |value| value.extend_from_slice(&[n; 9]), &mut out);
            spill.push(&out, &mut meter).expect("push");
        }
        spill.end_run(&mut meter).expect("end");
        let runs = spill.runs().to_vec();
        let bytes = disk.used_bytes();
        let synced = disk.open(Path::new("/data/t")).expect("open").sync_data();
        synced.expect("sync, as only what is on the platter can be damaged");
        for at in (0..bytes).step_by(7) {
            disk.flip(Path::new("/data/t"), at, 0x10);
            let mut read = || -> Result<usize, Error> {
                let mut merge = RunMerger::new(&spill, &runs, &mut meter)?;
                let mut count = 0;
                while merge.next(&spill, &mut meter)?.is_some() {
                    count += 1;
                }
                Ok(count)
            };
            let error = read().expect_err("damage");
            assert!(
                matches!(&error, Error::Corrupt { file, .. } if file == Path::new("/data/t")),
                "byte {at}: {error}"
            );
            disk.flip(Path::new("/data/t"), at, 0x10);
            assert_eq!(read().expect("sound again"), 200);
        }
    }
}

#[test]
fn sort_is_paced_and_can_be_stopped() {
    struct Stop(u64);
    impl CompactionHooks for Stop {
        fn pace(&mut self, bytes: u64, _: &CopyProgress) -> ControlFlow<()> {
            match self.0.checked_sub(bytes) {
                Some(left) => {
                    self.0 = left;
                    ControlFlow::Continue(())
                }
                None => ControlFlow::Break(()),
            }
        }
    }
    let disk = disk();
    let mut sorter = sorter(&disk, 4 << 10, false);
    let (mut hooks, mut progress) = (Stop(3 << 20), progress());
    let mut meter = ProgressMeter::new(&mut hooks, &mut progress);
    let result = (0..100_000_u32).try_for_each(|n| {
        sorter.push(&scatter(n).to_be_bytes(), 41, &mut meter, |value| {
            value.extend_from_slice(&[1; 41]);
        })
    });
    assert!(matches!(result, Err(Error::Stopped)));
    assert!(progress.bytes_written <= 3 << 20);
    drop(sorter);
    assert_eq!(disk.used_bytes(), 0);
}
