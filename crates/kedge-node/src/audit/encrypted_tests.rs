//! Tests of encrypted audit logs: no plain text, starts, failures, keys.

use std::collections::BTreeSet;
use std::path::Path;

use kedge_disk::{Fault, Operation, SimDisk, read_file};
use kedge_encryption::{KEYRING_FILE, LocalMasterKey, MasterKeys, Secret};

use super::file::FILE;
use super::*;

const DIR: &str = "/data";
const DAY_MS: u64 = 86_400_000;

fn sim() -> SimDisk {
    let sim = SimDisk::new(7);
    sim.create_dir_all(Path::new(DIR)).unwrap();
    sim
}

fn keyring(sim: &SimDisk) -> Arc<Keyring> {
    let master = MasterKeys::new(Arc::new(LocalMasterKey::new(Secret::new([5; 32]))));
    let path = Path::new(DIR).join(KEYRING_FILE);
    let keyring = Keyring::open(Arc::new(sim.clone()), &path, &master).unwrap();
    keyring.enable(0).unwrap();
    Arc::new(keyring)
}

fn log(sim: &SimDisk, keyring: &Arc<Keyring>) -> LogFile {
    let keys = AuditKeys(Some(keyring.clone()));
    LogFile::new(Arc::new(sim.clone()), PathBuf::from(DIR), 3, keys)
}

const LIMITS: RotationLimits = RotationLimits {
    bytes_max: 4_000,
    interval_ms: u64::MAX,
    prune_age_ms: 0,
};

fn line(number: usize) -> Vec<u8> {
    format!("{{\"secret-of-a-line\":{number}}}\n").into_bytes()
}

fn append(log: &mut LogFile, number: usize) -> bool {
    log.append(&line(number), LIMITS, 1).is_ok()
}

/// Returns the numbers in a file, and checks that it has no plain text.
fn numbers(sim: &SimDisk, name: &str, keyring: &Keyring) -> Vec<usize> {
    let bytes = read_file(sim, &Path::new(DIR).join(name)).unwrap();
    let marker = b"secret-of";
    assert!(
        !bytes.windows(marker.len()).any(|it| it == marker),
        "{name}"
    );
    let mut out = Vec::new();
    let keys = keyring.keys();
    print_audit_file(&*bytes, &mut |id| keys.find(id).cloned(), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let number = |line: &str| line[20..line.len() - 1].parse().unwrap();
    text.lines().map(number).collect()
}

#[test]
fn encrypted_audit_log_goes_on_after_restarts_and_crashes() {
    let sim = sim();
    let keyring = keyring(&sim);
    for start in 0..4 {
        let mut log = log(&sim, &keyring);
        for number in [0, 1, 2] {
            assert!(append(&mut log, start * 3 + number));
        }
        sim.crash(start as u64);
    }
    assert_eq!(numbers(&sim, FILE, &keyring), Vec::from_iter(0..12));
    assert!(!sim.exists(Path::new("/data/audit.log.1")).unwrap());
}

#[test]
fn torn_end_of_an_encrypted_audit_log_is_rotated_away() {
    let sim = sim();
    let keyring = keyring(&sim);
    let mut first = log(&sim, &keyring);
    assert!(append(&mut first, 1) && append(&mut first, 2));
    let path = Path::new(DIR).join(FILE);
    let file = sim.open(&path).unwrap();
    file.set_len(file.len().unwrap() - 3).unwrap();
    let mut second = log(&sim, &keyring);
    assert!(append(&mut second, 3));
    assert_eq!(numbers(&sim, "audit.log.1", &keyring), [1]);
    assert_eq!(numbers(&sim, FILE, &keyring), [3]);
}

/// A record that a failed write has left is cut off, and another one in its place has another key.
#[test]
fn no_number_is_used_twice_with_a_key_after_failed_writes() {
    for op in [Operation::Write, Operation::Sync] {
        let sim = sim();
        let keyring = keyring(&sim);
        let mut log = log(&sim, &keyring);
        let mut seen = BTreeSet::new();
        let path = Path::new(DIR).join(FILE);
        for number in 0..21 {
            let fails = number % 3 == 1;
            if fails {
                sim.fail_next(op, Fault::Io);
            }
            assert_eq!(append(&mut log, number), !fails, "{op}");
            // What the disk may have seen, of failed writes too.
            let file = sim.open(&path).unwrap();
            let mut records = keys::records(&*file).unwrap();
            let mut context = [0; 32];
            while let Ok(Some(record)) = records.next() {
                match record {
                    format::Record::Key { context: found, .. } => context = found,
                    format::Record::Lines { number, sealed } => {
                        seen.insert((context, number, sealed));
                    }
                }
            }
        }
        let places: BTreeSet<_> = seen.iter().map(|it| (it.0, it.1)).collect();
        assert_eq!(places.len(), seen.len(), "{op}");
        let kept: Vec<usize> = (0..21).filter(|number| number % 3 != 1).collect();
        assert_eq!(numbers(&sim, FILE, &keyring), kept, "{op}");
    }
}

#[test]
fn audit_log_is_rotated_when_encryption_is_switched_on_or_off() {
    let sim = sim();
    let plain = |sim: &SimDisk| {
        let disk = Arc::new(sim.clone());
        LogFile::new(disk, PathBuf::from(DIR), 3, AuditKeys::default())
    };
    assert!(append(&mut plain(&sim), 1));
    let keyring = keyring(&sim);
    assert!(append(&mut log(&sim, &keyring), 2));
    assert_eq!(numbers(&sim, FILE, &keyring), [2]);
    let state = AuditKeys(Some(keyring.clone()))
        .state(&sim, Path::new(DIR))
        .unwrap();
    assert!(state.is_enabled);
    assert_eq!((state.encrypted_files, state.plain_files), (1, 1));
    assert!(append(&mut plain(&sim), 3));
    assert_eq!(
        read_file(&sim, &Path::new(DIR).join(FILE)).unwrap(),
        line(3)
    );
    assert_eq!(numbers(&sim, "audit.log.1", &keyring), [2]);
    let first = read_file(&sim, Path::new("/data/audit.log.2")).unwrap();
    let mut out = Vec::new();
    print_audit_file(&*first, &mut |_| None, &mut out).unwrap();
    assert_eq!(out, line(1));
}

#[test]
fn failed_rotation_leaves_no_plain_line() {
    for op in [Operation::Create, Operation::Rename, Operation::SyncDir] {
        let sim = sim();
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let mut plain = LogFile::new(disk, PathBuf::from(DIR), 3, AuditKeys::default());
        assert!(append(&mut plain, 1));
        let keyring = keyring(&sim);
        let mut encrypted = log(&sim, &keyring);
        sim.fail_every(op, Fault::NoSpace);
        assert!(
            !append(&mut encrypted, 2) && !append(&mut encrypted, 3),
            "{op}"
        );
        sim.clear_faults();
        assert!(append(&mut encrypted, 4), "{op}");
        assert_eq!(numbers(&sim, FILE, &keyring), [4], "{op}");
    }
}

#[test]
fn audit_keys_are_renewed_and_removed_with_the_last_file_that_needs_them() {
    let sim = sim();
    let keyring = keyring(&sim);
    let mut log = log(&sim, &keyring);
    let small = RotationLimits {
        bytes_max: 1,
        ..LIMITS
    };
    log.append(&line(0), small, 0).unwrap();
    let first = keyring.keys().active().unwrap().id().to_owned();
    // Asked for: the next line has it, in the same file.
    keyring.rotate(1, true).unwrap();
    assert!(append(&mut log, 1));
    assert_eq!(numbers(&sim, FILE, &keyring), [0, 1]);
    assert_eq!(keyring.keys().len(), 2);
    // By age, at a rotation of the file.
    log.append(&line(2), small, 31 * DAY_MS).unwrap();
    assert_eq!(keyring.keys().len(), 3);
    for number in 3..6 {
        assert!(keyring.keys().find(&first).is_some(), "{number}");
        log.append(&line(number), small, 32 * DAY_MS).unwrap();
    }
    // The last of them has replaced the oldest file.
    log.append(&line(6), small, 32 * DAY_MS).unwrap();
    assert!(keyring.keys().find(&first).is_none());
    assert_eq!(keyring.keys().len(), 1);
    assert_eq!(numbers(&sim, "audit.log.3", &keyring), [3]);
}

#[test]
fn damaged_and_foreign_records_are_not_printed() {
    let sim = sim();
    let keyring = keyring(&sim);
    let mut log = log(&sim, &keyring);
    assert!(append(&mut log, 1) && append(&mut log, 2));
    let bytes = read_file(&sim, &Path::new(DIR).join(FILE)).unwrap();
    let print = |bytes: &[u8], with_keys: bool| {
        let mut out = Vec::new();
        let keys = keyring.keys();
        let mut find = |id: &str| keys.find(id).filter(|_| with_keys).cloned();
        (print_audit_file(bytes, &mut find, &mut out), out)
    };
    assert!(matches!(
        print(&bytes, false).0,
        Err(AuditReadError::KeyNeeded(_))
    ));
    let mut damaged = bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let (result, out) = print(&damaged, true);
    assert!(matches!(result, Err(AuditReadError::Damaged(_))));
    assert_eq!(out, line(1));
    // The record of a line twice.
    let record = 9 + 8 + line(1).len() + 16;
    let replayed = [&bytes[..], &bytes[bytes.len() - record..]].concat();
    let (result, out) = print(&replayed, true);
    assert!(
        matches!(result, Err(AuditReadError::Damaged(_))),
        "{result:?}"
    );
    assert_eq!(out, [line(1), line(2)].concat());
}
