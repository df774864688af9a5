//! Tests of buckets that are created and dropped at runtime, and loaded after a restart.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kedge_bucket::{BucketChange, BucketConfig, Completion, Completions, Cookie, RecoveryMode};
use kedge_cluster::{ManifestEdit, Ports};
use kedge_disk::{Disk, Fault, Operation, PosixDisk, SimDisk};
use kedge_executor::Executor;
use kedge_node::registry::{BucketRegistry, RegistryError, RegistrySetup, check_name};
use kedge_types::{ManifestUid, ScopeId, Status, SystemClock};

use crate::client::SDK_FEATURES;
use crate::server::{FEW_THREADS, Kedge, PASSWORD, USER};

struct Nobody;

impl Completions for Nobody {
    fn complete(&self, done: &mut Vec<(Cookie, Completion)>) {
        done.clear();
    }
}

fn on_disk(dir: &Path) -> Result<BucketRegistry, RegistryError> {
    open(Arc::new(PosixDisk), dir)
}

pub(crate) fn open(disk: Arc<dyn Disk>, dir: &Path) -> Result<BucketRegistry, RegistryError> {
    open_with(disk, dir, |why| panic!("{why}"))
}

/// As [`open`], with another reaction to the failure of a bucket.
pub(crate) fn open_with(
    disk: Arc<dyn Disk>,
    dir: &Path,
    on_fatal: impl Fn(&str) + Send + Sync + 'static,
) -> Result<BucketRegistry, RegistryError> {
    open_on(&Executor::new(FEW_THREADS).unwrap(), disk, dir, on_fatal)
}

/// As [`open_with`], with the executor of the caller.
pub(crate) fn open_on(
    executor: &Executor,
    disk: Arc<dyn Disk>,
    dir: &Path,
    on_fatal: impl Fn(&str) + Send + Sync + 'static,
) -> Result<BucketRegistry, RegistryError> {
    let owner = executor.register("server").unwrap();
    let setup = RegistrySetup {
        disk,
        data_dir: dir.to_owned(),
        master_keys: None,
        clock: Arc::new(SystemClock::new()),
        executor: executor.clone(),
        owner,
        completions: Arc::new(Nobody),
        serving: Arc::default(),
        threads: 1,
        recovery: RecoveryMode::Strict,
        clustered: false,
        on_fatal: Arc::new(on_fatal),
    };
    BucketRegistry::open(setup, Ports::plain(1, 2))
}

fn config(name: &str) -> BucketConfig {
    BucketConfig::new(name, 4, 64 << 20)
}

fn names(registry: &BucketRegistry) -> Vec<String> {
    registry
        .list()
        .iter()
        .map(|bucket| bucket.name().to_owned())
        .collect()
}

#[test]
fn buckets_and_their_settings_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let registry = on_disk(dir.path()).unwrap();
    let revision = registry.cluster().revision();
    for name in ["b", "a", "c"] {
        registry.create(config(name)).unwrap();
    }
    let change = BucketChange {
        quota_bytes: Some(99 << 20),
        ..BucketChange::default()
    };
    registry.update("a", &change).unwrap();
    registry.drop_bucket("c").unwrap();
    assert_eq!(names(&registry), ["a", "b"]);
    assert!(registry.cluster().snapshot().bucket("c").is_none());
    let uuid = registry.get("a").unwrap().config().uuid.clone();
    let last = registry.cluster().revision();
    assert!(last.rev >= revision.rev + 5, "every change has a revision");
    registry.shutdown();
    drop(registry);

    let registry = on_disk(dir.path()).unwrap();
    assert_eq!(names(&registry), ["a", "b"]);
    let again = registry.get("a").unwrap().config();
    assert_eq!((again.quota_bytes, &again.uuid), (99 << 20, &uuid));
    assert!(registry.cluster().revision() > last);
    assert!(!dir.path().join("buckets/c").exists());
    registry.shutdown();
}

fn scope(name: &str) -> ManifestEdit {
    ManifestEdit::CreateScope {
        scope: name.to_owned(),
    }
}

fn collection(name: &str) -> ManifestEdit {
    ManifestEdit::CreateCollection {
        scope: "_default".to_owned(),
        collection: name.to_owned(),
        max_ttl: None,
    }
}

#[test]
fn manifests_survive_a_restart_and_are_dropped_with_their_bucket() {
    let dir = tempfile::tempdir().unwrap();
    let registry = on_disk(dir.path()).unwrap();
    for name in ["a", "b"] {
        registry.create(config(name)).unwrap();
        for edit in [scope("s"), collection("c")] {
            registry.edit_manifest(name, &edit).unwrap();
        }
    }
    let drop_scope = ManifestEdit::DropScope {
        scope: "s".to_owned(),
    };
    let uid = registry.edit_manifest("a", &drop_scope).unwrap();
    assert_eq!(uid, ManifestUid(3));
    assert!(matches!(
        registry.edit_manifest("a", &drop_scope),
        Err(RegistryError::Manifest(_))
    ));
    assert!(matches!(
        registry.edit_manifest("none", &drop_scope),
        Err(RegistryError::NotFound(_))
    ));
    registry.drop_bucket("b").unwrap();
    registry.create(config("b")).unwrap();
    let shown = |registry: &BucketRegistry, name: &str| {
        let snapshot = registry.cluster().snapshot();
        snapshot.bucket(name).unwrap().manifest_uid
    };
    assert_eq!((shown(&registry, "a"), shown(&registry, "b")), (3, 0));
    let before = registry.manifest("a").unwrap();
    registry.shutdown();
    drop(registry);

    let registry = on_disk(dir.path()).unwrap();
    assert_eq!(registry.manifest("a").unwrap(), before);
    assert_eq!(registry.manifest("b").unwrap(), Arc::default());
    assert_eq!((shown(&registry, "a"), shown(&registry, "b")), (3, 0));
    // The id of a dropped collection is never reused.
    registry.edit_manifest("a", &scope("t")).unwrap();
    let now = registry.manifest("a").unwrap();
    assert!(now.scope(ScopeId(8)).is_none() && now.scope(ScopeId(9)).is_some());
    registry.shutdown();
    drop(registry);

    let path = dir.path().join("buckets/a/manifest.json");
    std::fs::write(&path, "{").unwrap();
    let Err(error) = on_disk(dir.path()) else {
        panic!("it opens")
    };
    let start = format!("{}: ", path.display());
    assert!(error.to_string().starts_with(&start), "{error}");
}

/// A change that cannot be saved is not made.
#[test]
fn a_full_disk_refuses_a_collection() {
    let disk = Arc::new(SimDisk::new(1));
    let registry = open(disk.clone(), Path::new("/data")).unwrap();
    registry.create(config("a")).unwrap().wait_loaded().unwrap();
    disk.fail_next(Operation::Rename, Fault::NoSpace);
    let refused = registry.edit_manifest("a", &collection("c"));
    assert!(matches!(refused, Err(RegistryError::Disk(_))));
    assert_eq!(registry.manifest("a").unwrap(), Arc::default());
    registry.edit_manifest("a", &collection("c")).unwrap();
    assert_eq!(registry.manifest("a").unwrap().uid, ManifestUid(1));
    registry.shutdown();
}

#[test]
fn refused_changes_have_no_effect() {
    let registry = open(Arc::new(SimDisk::new(1)), Path::new("/data")).unwrap();
    registry.create(config("a")).unwrap();
    let generation = registry.generation();
    let bad = BucketConfig {
        vbuckets: 0,
        ..config("b")
    };
    assert!(matches!(
        registry.create(config("a")),
        Err(RegistryError::Exists(_))
    ));
    assert!(matches!(
        registry.create(config("A")),
        Err(RegistryError::Exists(_))
    ));
    assert!(matches!(
        registry.create(config("a/b")),
        Err(RegistryError::BadName(_))
    ));
    assert!(matches!(
        registry.create(bad),
        Err(RegistryError::BadSetting(_))
    ));
    assert!(matches!(
        registry.drop_bucket("b"),
        Err(RegistryError::NotFound(_))
    ));
    let none = BucketChange::default();
    assert!(matches!(
        registry.update("b", &none),
        Err(RegistryError::NotFound(_))
    ));
    assert!(matches!(
        registry.flush("a"),
        Err(RegistryError::FlushDisabled(_))
    ));
    assert_eq!(registry.generation(), generation);
    for number in 1..kedge_types::limits::BUCKETS_MAX {
        registry.create(config(&format!("n{number}"))).unwrap();
    }
    assert!(matches!(
        registry.create(config("more")),
        Err(RegistryError::TooMany)
    ));
    registry.shutdown();
}

#[test]
fn names_of_buckets() {
    for good in ["a", "default", "travel-sample", "A_1.%", &"x".repeat(100)] {
        assert!(check_name(good).is_ok(), "{good}");
    }
    for bad in [
        "",
        ".",
        "..",
        ".hidden",
        "a b",
        "a/b",
        "\u{e4}",
        "a\0",
        &"x".repeat(101),
    ] {
        assert!(check_name(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn remains_of_interrupted_creates_and_drops_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let registry = on_disk(dir.path()).unwrap();
    for name in ["kept", "dropped"] {
        registry
            .create(config(name))
            .unwrap()
            .wait_loaded()
            .unwrap();
    }
    registry.shutdown();
    drop(registry);
    let buckets = dir.path().join("buckets");
    // Created up to the last step, or dropped up to the first.
    std::fs::create_dir_all(buckets.join("made/log")).unwrap();
    std::fs::write(buckets.join("made/creating"), "").unwrap();
    std::fs::write(buckets.join("made/bucket.json.tmp"), "{").unwrap();
    std::fs::rename(
        buckets.join("dropped/bucket.json"),
        buckets.join("dropped/dropping"),
    )
    .unwrap();
    let registry = on_disk(dir.path()).unwrap();
    assert_eq!(names(&registry), ["kept"]);
    assert!(!buckets.join("made").exists() && !buckets.join("dropped").exists());
    registry
        .create(config("made"))
        .unwrap()
        .wait_loaded()
        .unwrap();
    registry.shutdown();
}

/// All files below a directory, with their contents.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    found
}

/// A data directory with the buckets "a" and "b"; "b" has lost its settings.
fn without_settings() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let registry = on_disk(dir.path()).unwrap();
    for name in ["a", "b"] {
        let bucket = registry.create(config(name)).unwrap();
        bucket.wait_loaded().unwrap();
        registry.edit_manifest(name, &scope("s")).unwrap();
    }
    registry.shutdown();
    drop(registry);
    std::fs::remove_file(dir.path().join("buckets/b/bucket.json")).unwrap();
    dir
}

/// A bucket without `bucket.json` was deleted at the next start, data files and log included.
#[test]
fn bucket_without_settings_is_kept_until_adopted() {
    let dir = without_settings();
    let path = dir.path().join("buckets/b");
    let before = contents(&path);
    assert!(before.len() > 3, "{:?}", before.keys());
    for _ in 0..2 {
        let registry = on_disk(dir.path()).unwrap();
        assert_eq!(names(&registry), ["a"]);
        let [unserved] = &registry.unserved().unwrap()[..] else {
            panic!("there is one")
        };
        assert_eq!((&*unserved.name, &unserved.path), ("b", &path));
        assert!(unserved.remedy.contains("kedge bucket adopt b"));
        for name in ["b", "B"] {
            let Err(error @ RegistryError::Unserved(_)) = registry.create(config(name)) else {
                panic!("{name} is made")
            };
            let path = path.display().to_string();
            assert!(error.to_string().contains(&path), "{error}");
        }
        registry.shutdown();
        drop(registry);
        assert_eq!(contents(&path), before);
    }
    let registry = on_disk(dir.path()).unwrap();
    let unserved = || {
        let mut all = Vec::new();
        registry.stats(&mut |name, value| all.push(format!("{name} {value}")));
        all.retain(|stat| stat.starts_with("unserved"));
        all
    };
    assert_eq!(unserved(), ["unserved_directories 1"]);
    let bucket = registry.adopt("b", None).unwrap();
    assert_eq!(unserved(), ["unserved_directories 0"]);
    bucket.wait_loaded().unwrap();
    assert_eq!(bucket.config().quota_bytes, 64 << 20);
    assert_eq!(registry.manifest("b").unwrap().uid, ManifestUid(1));
    assert!(registry.cluster().snapshot().bucket("b").is_some());
    assert!(registry.unserved().unwrap().is_empty());
    assert!(matches!(
        registry.adopt("b", None),
        Err(RegistryError::Exists(_))
    ));
    for none in ["c", ".."] {
        assert!(registry.adopt(none, None).is_err());
    }
    registry.shutdown();
    drop(registry);
    let registry = on_disk(dir.path()).unwrap();
    assert_eq!(names(&registry), ["a", "b"]);
    registry.shutdown();
}

#[test]
fn unknown_directories_are_left_alone() {
    let dir = without_settings();
    let buckets = dir.path().join("buckets");
    std::fs::remove_file(buckets.join("b/bucket.json.copy")).unwrap();
    std::fs::create_dir_all(buckets.join("empty")).unwrap();
    std::fs::write(buckets.join("notes.txt"), "text").unwrap();
    let before = contents(&buckets.join("b"));
    let registry = on_disk(dir.path()).unwrap();
    let unserved = registry.unserved().unwrap();
    let listed: Vec<&str> = unserved.iter().map(|it| &*it.name).collect();
    assert_eq!(listed, ["b", "notes.txt"]);
    for name in listed {
        let refused = registry.adopt(name, None);
        assert!(
            matches!(refused, Err(RegistryError::NoSettings(_))),
            "{name}"
        );
    }
    // An empty directory is no obstacle.
    registry.create(config("empty")).unwrap();
    registry.drop_bucket("a").unwrap();
    registry.shutdown();
    drop(registry);
    assert_eq!(contents(&buckets.join("b")), before);
    assert_eq!(std::fs::read(buckets.join("notes.txt")).unwrap(), b"text");
    assert!(!buckets.join("a").exists());
}

#[test]
fn foreign_bucket_directory_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let registry = on_disk(dir.path()).unwrap();
    let path = dir.path().join("buckets/b");
    std::fs::create_dir_all(&path).unwrap();
    let json = serde_json::to_vec(&config("b")).unwrap();
    std::fs::write(path.join("bucket.json"), &json).unwrap();
    let refused = registry.create(config("b"));
    assert!(matches!(refused, Err(RegistryError::Unserved(_))));
    assert_eq!(std::fs::read(path.join("bucket.json")).unwrap(), json);
    registry.adopt("b", None).unwrap().wait_loaded().unwrap();
    registry.shutdown();
}

#[test]
fn missing_manifest_or_cluster_state_fails_the_start() {
    for file in ["buckets/a/manifest.json", "cluster.json"] {
        let dir = without_settings();
        let path = dir.path().join(file);
        std::fs::remove_file(&path).unwrap();
        let Err(error) = on_disk(dir.path()) else {
            panic!("it opens without {file}")
        };
        let error = error.to_string();
        let list = path.with_file_name("files.json").display().to_string();
        assert!(error.contains(&path.display().to_string()), "{error}");
        assert!(error.contains(&list), "{error}");
        std::fs::remove_file(&list).unwrap();
        on_disk(dir.path()).unwrap().shutdown();
    }
}

#[test]
fn failed_drop_keeps_the_bucket() {
    let disk = Arc::new(SimDisk::new(1));
    let registry = open(disk.clone(), Path::new("/data")).unwrap();
    registry.create(config("a")).unwrap().wait_loaded().unwrap();
    disk.fail_next(Operation::Rename, Fault::Io);
    assert!(matches!(
        registry.drop_bucket("a"),
        Err(RegistryError::Disk(_))
    ));
    assert_eq!(names(&registry), ["a"]);
    assert!(registry.cluster().snapshot().bucket("a").is_some());
    registry.drop_bucket("a").unwrap();
    assert!(!disk.exists(Path::new("/data/buckets/a")).unwrap());
    registry.shutdown();
}

#[test]
fn interrupted_create_in_its_last_step_is_completed() {
    let dir = tempfile::tempdir().unwrap();
    let made = dir.path().join("buckets/made");
    std::fs::create_dir_all(&made).unwrap();
    std::fs::write(
        made.join("bucket.json"),
        serde_json::to_vec(&config("made")).unwrap(),
    )
    .unwrap();
    let registry = on_disk(dir.path()).unwrap();
    registry.get("made").unwrap().wait_loaded().unwrap();
    assert!(registry.cluster().snapshot().bucket("made").is_some());
    registry.shutdown();
}

#[test]
fn malformed_settings_file_is_named_in_the_error() {
    let other = serde_json::to_string(&config("b")).unwrap();
    let none = serde_json::to_string(&BucketConfig {
        vbuckets: 0,
        ..config("a")
    })
    .unwrap();
    for text in ["{\"name\":", "", "{}", &other, &none] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("buckets/a/bucket.json");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        let Err(error) = on_disk(dir.path()) else {
            panic!("it opens")
        };
        let start = format!("{}: ", path.display());
        assert!(error.to_string().starts_with(&start), "{error}");
    }
}

#[test]
fn create_on_a_full_disk_leaves_nothing() {
    let disk = Arc::new(SimDisk::new(1));
    let registry = open(disk.clone(), Path::new("/data")).unwrap();
    disk.fail_next(Operation::Write, Fault::NoSpace);
    assert!(registry.create(config("a")).is_err());
    assert!(registry.list().is_empty());
    registry.create(config("a")).unwrap();
    registry.shutdown();
}

#[test]
fn connections_of_a_dropped_bucket_lose_it() {
    let kedge = Kedge::start();
    let registry = kedge.server().registry();
    registry
        .create(config("other"))
        .unwrap()
        .wait_loaded()
        .unwrap();
    let mut client = kedge.connect();
    client.hello(SDK_FEATURES);
    client.log_in(USER, PASSWORD);
    client.select("other");
    let mut stays = kedge.client();
    stays.set("k", b"v").ok();
    registry.drop_bucket("other").unwrap();
    assert_eq!(client.get("k").status, Status::NoBucket);
    assert_eq!(client.try_select("other").status, Status::AccessDenied);
    client.select("default");
    assert_eq!(stays.get("k").ok().value, b"v");
    registry.drop_bucket("default").unwrap();
    let mut plain = kedge.text();
    plain.expect("get k\r\n", "SERVER_ERROR there is no bucket\r\n");
    registry
        .create(BucketConfig::new("default", 16, 64 << 20))
        .unwrap()
        .wait_loaded()
        .unwrap();
    plain.expect("get k\r\n", "END\r\n");
}
