//! No key and nonce of a batch is used for two contents, whatever is written again at the same position.

use std::collections::BTreeMap;

use kedge_disk::{Disk, Fault, SimDisk, read_file};
use kedge_log::{Batch, LogError};

use crate::encrypted::support::{append, dir, fill, open, prepare, records};

/// Tags of batches by salt and count, which stand for key and nonce. The tag depends on all bytes of a batch.
#[derive(Default)]
struct Seals(BTreeMap<[u8; 24], [u8; 16]>);

impl Seals {
    /// Adds all batches whose headers are in the files of the log, also those that are cut off.
    fn note(&mut self, disk: &SimDisk, what: &str) {
        // The power may have failed before there was a directory.
        for name in disk.list(dir()).unwrap_or_default() {
            let bytes = read_file(disk, &dir().join(name)).expect("read");
            for at in (4096..bytes.len().saturating_sub(88)).step_by(8) {
                let header = &bytes[at..at + 88];
                if &header[..4] != b"KgBt" || !is_sound(header) {
                    continue;
                }
                let key_and_nonce = header[48..72].try_into().expect("24 bytes");
                let tag = header[72..].try_into().expect("16 bytes");
                let found = *self.0.entry(key_and_nonce).or_insert(tag);
                assert_eq!(found, tag, "{what}: a nonce is used twice");
            }
        }
    }
}

/// Returns `true` if all bytes of the header were written.
fn is_sound(header: &[u8]) -> bool {
    let crc = crc32c::crc32c(&0x5a17_u64.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c_append(crc, &header[..4]), &header[8..]);
    header[4..8] == crc.to_le_bytes()
}

/// Appends batches, with more records after a failure, and opens the log anew in between. Ends early with other failures.
fn history(disk: &SimDisk, seals: &mut Seals, what: &str) -> Result<(), LogError> {
    let mut failures = 0;
    for round in 0..3 {
        let mut log = open(disk)?.log;
        seals.note(disk, what);
        for n in 0..7 {
            let mut batch = Batch::new();
            fill(&mut batch, &records(10 * round + n, 2, 100 + 400 * n));
            while let Err(error) = log.append(&mut batch) {
                seals.note(disk, what);
                failures += 1;
                if !error.is_passing() || failures > 3 {
                    return Err(error);
                }
                fill(&mut batch, &records(99, 1, 40));
            }
            if n == 5 {
                log.write_marker()?;
            }
            drop(prepare(&log.preallocator()));
            seals.note(disk, what);
        }
        log.release_before(log.next_lsn());
    }
    Ok(())
}

#[test]
fn nonce_is_never_used_for_two_contents() {
    let mut seals = Seals::default();
    let disk = SimDisk::new(1);
    history(&disk, &mut seals, "undisturbed").expect("nothing goes wrong");
    assert!(seals.0.len() > 20, "{} batches", seals.0.len());
    let operations = disk.operations();
    for fault in [Fault::NoSpace, Fault::Io, Fault::PowerLoss] {
        for number in 1..=operations {
            let what = format!("{fault:?} at {number}");
            let disk = SimDisk::new(number);
            disk.fail_operation(number, fault);
            let mut seals = Seals::default();
            let _ = history(&disk, &mut seals, &what);
            // All that follows is at the positions that were in use at the end, or cut off.
            for seed in 0..3 {
                disk.crash(seed);
                seals.note(&disk, &what);
                let mut log = open(&disk).expect("open").log;
                seals.note(&disk, &what);
                append(&mut log, &records(50 + seed as usize, 1, 700)).expect("append");
                seals.note(&disk, &what);
            }
        }
    }
}
