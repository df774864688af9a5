//! Tests of keyrings: life of keys, damage, other master keys, crashes.

use super::*;
use crate::key::KEY_BYTES;
use crate::{LocalMasterKey, MasterKeyError, MasterKeyInfo};
use kedge_disk::{Fault, SimDisk};
use proptest::prelude::*;
use std::collections::BTreeMap;

const DIR: &str = "/data";

fn path() -> PathBuf {
    Path::new(DIR).join(KEYRING_FILE)
}

fn disk() -> SimDisk {
    let disk = SimDisk::new(1);
    disk.create_dir_all(Path::new(DIR)).expect("a directory");
    disk
}

fn master(byte: u8) -> Arc<dyn MasterKey> {
    Arc::new(LocalMasterKey::new(Secret::new([byte; KEY_BYTES])))
}

fn open_with(disk: &SimDisk, masters: &MasterKeys) -> Result<Keyring, KeyringError> {
    Keyring::open(Arc::new(disk.clone()), &path(), masters)
}

fn open(disk: &SimDisk) -> Keyring {
    open_with(disk, &MasterKeys::new(master(1))).expect("a keyring")
}

fn ids(keyring: &Keyring) -> Vec<String> {
    keyring
        .keys()
        .iter()
        .map(|key| key.id().to_owned())
        .collect()
}

fn active(keyring: &Keyring) -> Option<String> {
    keyring.keys().active().map(|key| key.id().to_owned())
}

#[test]
fn keys_survive_a_power_failure_and_stay_the_same() {
    let disk = disk();
    let keyring = open(&disk);
    assert!(keyring.keys().is_empty() && active(&keyring).is_none());
    keyring.enable(10).expect("enabled");
    keyring.enable(11).expect("it is already");
    keyring.rotate(20, false).expect("rotated");
    let before = keyring.keys();
    assert_eq!(before.len(), 2);
    disk.crash(7);
    let after = open(&disk).keys();
    assert_eq!(after, before);
    for (a, b) in before.iter().zip(after.iter()) {
        assert_eq!(
            (a.secret(), a.created_unix_secs()),
            (b.secret(), b.created_unix_secs())
        );
    }
}

#[test]
fn data_is_written_again_if_its_key_is_retired_or_of_another_state() {
    let keyring = open(&disk());
    assert!(!keyring.keys().replaces(None));
    assert!(
        keyring.keys().replaces(Some("some key")),
        "it is to be plain"
    );
    keyring.enable(10).expect("enabled");
    let first = active(&keyring).expect("a key");
    assert!(keyring.keys().replaces(None));
    assert!(!keyring.keys().replaces(Some(&first)));
    keyring.rotate(20, false).expect("rotated");
    assert!(!keyring.keys().replaces(Some(&first)), "it is not too old");
    keyring.retire_before(10).expect("nothing is older");
    assert!(!keyring.keys().replaces(Some(&first)));
    keyring.retire_before(11).expect("retired");
    assert!(keyring.keys().replaces(Some(&first)));
    let second = active(&keyring).expect("a key");
    keyring.retire_before(100).expect("the active one stays");
    assert!(!keyring.keys().replaces(Some(&second)));
    keyring.rotate(30, true).expect("rotated");
    assert!(keyring.keys().replaces(Some(&second)));
    keyring.disable().expect("disabled");
    let third = ids(&keyring)[2].clone();
    assert!(keyring.keys().replaces(Some(&third)) && !keyring.keys().replaces(None));
}

#[test]
fn leased_and_active_keys_are_not_offered_for_removal() {
    let disk = disk();
    let keyring = open(&disk);
    keyring.enable(10).expect("enabled");
    let lease = Arc::clone(keyring.keys().active().expect("a key"));
    let first = lease.id().to_owned();
    assert!(keyring.unleased().is_empty(), "it is active");
    keyring.rotate(20, true).expect("rotated");
    assert!(keyring.unleased().is_empty(), "it is leased");
    drop(lease);
    let older = keyring.keys();
    keyring.rotate(30, true).expect("rotated");
    assert!(
        keyring.unleased().is_empty(),
        "someone may take it from an older set"
    );
    drop(older);
    assert_eq!(keyring.unleased(), ids(&keyring)[..2]);
    keyring
        .remove(&[first.clone(), active(&keyring).expect("a key")])
        .expect("removed");
    assert_eq!(ids(&keyring).len(), 2, "the active one stays");
    assert!(open(&disk).keys().find(&first).is_none());
}

#[test]
fn keyring_without_keys_has_no_file() {
    let disk = disk();
    let keyring = open(&disk);
    assert!(!disk.exists(&path()).expect("a look"));
    keyring.enable(10).expect("enabled");
    keyring.disable().expect("disabled");
    assert!(
        disk.exists(&path()).expect("a look"),
        "files may need the key"
    );
    keyring.remove(&keyring.unleased()).expect("removed");
    disk.crash(3);
    assert!(!disk.exists(&path()).expect("a look"));
    open(&disk).enable(20).expect("enabled again");
}

#[test]
fn another_master_key_is_a_clear_error() {
    let disk = disk();
    open(&disk).enable(10).expect("enabled");
    let error = open_with(&disk, &MasterKeys::new(master(2))).expect_err("another key");
    let (is, given) = (master(1).name().to_owned(), master(2).name().to_owned());
    let text = error.to_string();
    assert!(
        text.contains(&is) && text.contains(&given) && text.contains(KEYRING_FILE),
        "{text}"
    );
}

#[test]
fn keyring_moves_from_the_previous_master_key_to_the_current_one() {
    let disk = disk();
    let keyring = open(&disk);
    keyring.enable(10).expect("enabled");
    let masters = MasterKeys::new(master(2)).with_previous(master(1));
    let moved = open_with(&disk, &masters).expect("the previous key opens it");
    assert_eq!(ids(&moved), ids(&keyring));
    disk.crash(5);
    let alone =
        open_with(&disk, &MasterKeys::new(master(2))).expect("the previous one is needless");
    assert_eq!(ids(&alone), ids(&keyring));
    assert!(open_with(&disk, &MasterKeys::new(master(1))).is_err());
}

/// Tools read the keyring of a running server.
#[test]
fn keyring_file_is_read_with_either_master_key_and_is_not_changed() {
    let disk = disk();
    let keyring = open(&disk);
    keyring.enable(3).unwrap();
    keyring.rotate(4, false).unwrap();
    let bytes = read_file(&disk, &path()).unwrap();
    let file = KeyringFile::decode(&path(), &bytes).unwrap();
    assert_eq!(file.master_name(), master(1).name());
    let moved = MasterKeys::new(master(2)).with_previous(master(1));
    for masters in [MasterKeys::new(master(1)), moved] {
        let keys = file.unlock(&masters).unwrap();
        assert_eq!(keys, *keyring.keys());
    }
    let other = file.unlock(&MasterKeys::new(master(2)));
    assert!(matches!(other, Err(KeyringError::OtherMasterKey { .. })));
    assert_eq!(read_file(&disk, &path()).unwrap(), bytes);
}

/// A master key of a service that can be switched off.
struct Service {
    key: Arc<dyn MasterKey>,
    is_down: AtomicBool,
    wraps: std::sync::atomic::AtomicU64,
}

impl Service {
    fn check(&self) -> Result<(), MasterKeyError> {
        match self.is_down.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(MasterKeyError::Unavailable {
                service: "the service".to_owned(),
                why: "it is down".to_owned(),
            }),
        }
    }
}

impl MasterKey for Service {
    fn name(&self) -> &str {
        self.key.name()
    }

    fn wrap(&self, key: &Secret) -> Result<Vec<u8>, MasterKeyError> {
        self.check()?;
        self.wraps.fetch_add(1, Ordering::Relaxed);
        self.key.wrap(key)
    }

    fn unwrap(&self, wrapped: &[u8]) -> Result<Secret, MasterKeyError> {
        self.check()?;
        self.key.unwrap(wrapped)
    }

    fn info(&self) -> MasterKeyInfo {
        MasterKeyInfo::default()
    }
}

#[test]
fn unavailable_master_key_stops_only_a_rewrap_which_is_made_later() {
    let disk = disk();
    let service = Arc::new(Service {
        key: master(1),
        is_down: AtomicBool::new(false),
        wraps: Default::default(),
    });
    let wraps = || service.wraps.load(Ordering::Relaxed);
    let masters = MasterKeys::new(service.clone());
    let keyring = open_with(&disk, &masters).expect("a keyring");
    keyring.enable(10).expect("enabled");
    service.is_down.store(true, Ordering::Relaxed);
    keyring
        .rotate(20, false)
        .expect("data keys need no service");
    let before = read_file(&disk, &path()).expect("read");
    let error = keyring.rewrap().expect_err("the service is down");
    assert!(error.to_string().contains("it is down"), "{error}");
    assert!(keyring.retry_rewrap().is_err());
    assert_eq!(read_file(&disk, &path()).expect("read"), before);
    assert!(open_with(&disk, &masters).is_err());
    service.is_down.store(false, Ordering::Relaxed);
    assert_eq!(wraps(), 1);
    keyring.retry_rewrap().expect("it is up again");
    keyring.retry_rewrap().expect("nothing is due");
    assert_eq!(wraps(), 2);
    disk.crash(3);
    let after = open_with(&disk, &masters).expect("the new keyring key");
    assert_eq!(after.keys(), keyring.keys());
}

#[test]
fn damaged_file_is_a_clear_error_and_stays_as_it_is() {
    let made = disk();
    let keyring = open(&made);
    keyring.enable(10).expect("enabled");
    keyring.rotate(20, true).expect("rotated");
    let bytes = read_file(&made, &path()).expect("read");
    let check = |damaged: &[u8], what: &str| {
        let disk = disk();
        replace_file(&disk, &path(), damaged).expect("written");
        let error = open_with(&disk, &MasterKeys::new(master(1))).expect_err(what);
        assert!(
            matches!(error, KeyringError::Damaged { .. }),
            "{what}: {error}"
        );
        assert!(error.to_string().contains(KEYRING_FILE));
        assert_eq!(read_file(&disk, &path()).expect("read"), damaged);
    };
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        check(&flipped, &format!("bit {bit}"));
    }
    for len in 0..bytes.len() {
        check(&bytes[..len], &format!("{len} bytes"));
    }
    check(&[&bytes[..], &[0]].concat(), "a byte more");
}

/// Someone who can write the file cannot change it so that the checksum is right.
#[test]
fn forged_file_with_a_right_checksum_is_refused() {
    let made = disk();
    open(&made).enable(10).expect("enabled");
    let bytes = read_file(&made, &path()).expect("read");
    for at in 8..bytes.len() - 4 {
        let mut forged = bytes.clone();
        forged[at] ^= 1;
        let end = forged.len() - 4;
        let sum = crc32c::crc32c(&forged[..end]);
        forged[end..].copy_from_slice(&sum.to_le_bytes());
        let disk = disk();
        replace_file(&disk, &path(), &forged).expect("written");
        assert!(
            open_with(&disk, &MasterKeys::new(master(1))).is_err(),
            "byte {at}"
        );
    }
}

#[test]
fn file_of_a_newer_release_is_refused() {
    let disk = disk();
    open(&disk).enable(10).expect("enabled");
    let mut bytes = read_file(&disk, &path()).expect("read");
    bytes[8] = 2;
    let end = bytes.len() - 4;
    let sum = crc32c::crc32c(&bytes[..end]);
    bytes[end..].copy_from_slice(&sum.to_le_bytes());
    replace_file(&disk, &path(), &bytes).expect("written");
    let error = open_with(&disk, &MasterKeys::new(master(1))).expect_err("newer");
    assert!(
        matches!(error, KeyringError::Newer { version: 2, .. }),
        "{error}"
    );
}

#[test]
fn file_has_no_key_in_plain_text() {
    let disk = disk();
    let keyring = open(&disk);
    keyring.enable(10).expect("enabled");
    let bytes = read_file(&disk, &path()).expect("read");
    let secret = *keyring.keys().active().expect("a key").secret().clone();
    let has = |needle: &[u8]| bytes.windows(needle.len()).any(|it| it == needle);
    assert!(!has(&secret[..8]) && !has(&[1; 8]));
    assert!(has(master(1).name().as_bytes()));
}

#[test]
fn crash_or_refused_call_during_a_rotation_leaves_the_old_keys_or_the_new_ones() {
    for others in 0.. {
        let disk = disk();
        let keyring = open(&disk);
        keyring.enable(10).expect("enabled");
        let old = ids(&keyring);
        disk.fail_after(others, Fault::PowerLoss);
        let rotated = keyring.rotate(20, true);
        if rotated.is_err() {
            assert_eq!(ids(&keyring), old, "nobody got a key that may be lost");
        }
        for seed in 0..10 {
            let disk = disk.fork();
            disk.crash(seed);
            let after = ids(&open(&disk));
            assert_eq!(after[..1], old, "call {others}, seed {seed}");
            assert!(
                rotated.is_err() || after.len() == 2,
                "call {others}, seed {seed}"
            );
        }
        if rotated.is_ok() {
            assert!(others > 3, "each call failed once");
            return;
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Enable,
    Disable,
    Rotate(bool),
    RetireBefore(u64),
    Prune,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Enable),
        Just(Step::Disable),
        any::<bool>().prop_map(Step::Rotate),
        (0_u64..40).prop_map(Step::RetireBefore),
        Just(Step::Prune),
        Just(Step::Reopen),
    ]
}

proptest! {
    /// A model of the ids, with their times and whether they are retired.
    #[test]
    fn keyring_agrees_with_a_model(steps in proptest::collection::vec(step(), 0..40)) {
        let disk = disk();
        let mut keyring = open(&disk);
        let (mut model, mut current) = (BTreeMap::<String, (u64, bool)>::new(), None::<String>);
        for (step, now) in steps.into_iter().zip(0_u64..) {
            match step {
                Step::Enable => keyring.enable(now).unwrap(),
                Step::Disable => {
                    keyring.disable().unwrap();
                    current = None;
                }
                Step::Rotate(retire) => keyring.rotate(now, retire).unwrap(),
                Step::RetireBefore(secs) => keyring.retire_before(secs).unwrap(),
                Step::Prune => {
                    keyring.remove(&keyring.unleased()).unwrap();
                    model.retain(|id, _| current.as_ref() == Some(id));
                }
                Step::Reopen => keyring = open(&disk),
            }
            let is_new = matches!(step, Step::Enable) && current.is_none()
                || matches!(step, Step::Rotate(_)) && current.is_some();
            if is_new {
                current = active(&keyring);
                model.insert(current.clone().unwrap(), (now, false));
            }
            for (id, (created, retired)) in &mut model {
                let is_older = current.as_ref() != Some(id);
                *retired |= is_older && match step {
                    Step::Rotate(retire) => retire,
                    Step::RetireBefore(secs) => *created < secs,
                    _ => false,
                };
            }
            prop_assert_eq!(active(&keyring), current.clone());
            let keys = keyring.keys();
            prop_assert_eq!(keys.len(), model.len());
            for (id, (created, retired)) in &model {
                prop_assert_eq!(keys.find(id).map(|key| key.created_unix_secs()), Some(*created));
                let is_other = current.is_none() || *retired && current.as_ref() != Some(id);
                prop_assert_eq!(keys.replaces(Some(id)), is_other);
            }
            prop_assert_eq!(keys.replaces(None), current.is_some());
        }
    }
}
