//! The audit log: logins, failed logins, refused operations, and cluster commands. One JSON object a line, in a file that is rotated.
//!
//! Invariants:
//! * Reporting an event never waits for the disk: a task writes, and events beyond a limit are counted as lost. The
//!   next written line has their number.
//! * While events wait, the task runs or is scheduled, from [`Audit::write_by`] on; the first added event wakes it.
//! * No line contains a password or a document; text from clients is escaped and cut.
//! * With encryption at rest no line is written in plain text.
//! * The recorded events are those that the settings select ([`Audit::configure`]).

mod events;
mod file;
mod filter;
mod format;
mod keys;
mod reader;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use kedge_auth::{AuditSettings, USER_NAME_BYTES_MAX};
use kedge_disk::Disk;
use kedge_encryption::Keyring;
use kedge_executor::{Executor, Next, ScheduleError, TaskContext, TaskId, TaskSpec};
use kedge_sync::{
    RankedMutex,
    ranks::{AuditFile, AuditWaiting},
};
use serde_json::{Map, Value, json};

use self::file::{LogFile, RotationLimits};
use self::filter::Filter;
use self::keys::AuditKeys;
use crate::pools::TaskPools;
use crate::tasks::AUDIT_LOG;
use crate::timestamp::iso_8601;

pub use self::events::{EventDescriptor, EventKind};
pub use self::keys::{AUDIT_KEY_ROTATION_SECS, AuditEncryption};
pub use self::reader::{AuditReadError, audit_files, print_audit_file};

/// The largest number of waiting events; a line has some hundred bytes.
const QUEUE_MAX: usize = 16_384;
/// The largest number of lines that are written and synced together.
const BATCH_MAX: usize = 1_024;

/// The domain of users whose passwords are stored here.
const LOCAL: &str = "local";

/// The audit log of a node.
#[derive(Clone, Debug)]
pub struct AuditConfig {
    /// The directory of the files.
    pub dir: PathBuf,
    /// The number of older files that are kept.
    pub files_max: u32,
    /// The settings until an administrator makes others.
    pub settings: AuditSettings,
    /// The data keys of the node. Lines are encrypted if one of them is active.
    pub keyring: Option<Arc<Keyring>>,
}

/// One event. Fields that are empty or `None` are left out of the line.
#[derive(Clone, Copy, Debug)]
pub struct AuditEvent<'e> {
    /// The kind.
    pub kind: EventKind,
    /// The user, or the name of a login attempt.
    pub user: &'e str,
    /// The address of the client.
    pub peer: Option<SocketAddr>,
    /// The address of the server that the client has connected to.
    pub local: Option<SocketAddr>,
    /// The name of the session of the console.
    pub session: &'e str,
    /// The bucket.
    pub bucket: Option<&'e str>,
    /// The command, or method and path.
    pub request: &'e str,
    /// The cause of a failure.
    pub reason: &'e str,
    /// The parameters of a command. Their size is limited by the caller.
    pub parameters: Option<&'e Map<String, Value>>,
}

impl<'e> AuditEvent<'e> {
    /// Creates an event of a user, without other fields.
    #[must_use]
    pub fn new(kind: EventKind, user: &'e str) -> Self {
        Self {
            kind,
            user,
            peer: None,
            local: None,
            session: "",
            bucket: None,
            request: "",
            reason: "",
            parameters: None,
        }
    }

    fn line(&self, unix_ms: u64) -> Vec<u8> {
        let mut line = Map::new();
        let mut put = |name: &str, value: Value| line.insert(name.to_owned(), value);
        let descriptor = self.kind.descriptor();
        put("timestamp", iso_8601(unix_ms).into());
        put("id", descriptor.id.into());
        put("name", descriptor.name.into());
        put("description", descriptor.description.into());
        if !self.user.is_empty() {
            let (domain, user) = match kedge_auth::external_name(self.user) {
                Some(name) => ("external", name),
                None => (LOCAL, self.user),
            };
            let user = json!({ "domain": domain, "user": cut(user) });
            // Nobody acts for another user.
            put("effective_userid", user.clone());
            put("real_userid", user);
        }
        for (name, address) in [("remote", self.peer), ("local", self.local)] {
            if let Some(address) = address {
                let ip = address.ip().to_canonical().to_string();
                put(name, json!({ "ip": ip, "port": address.port() }));
            }
        }
        if let Some(bucket) = self.bucket {
            put("bucket", bucket.into());
        }
        for (name, text) in [
            ("request", self.request),
            ("reason", self.reason),
            ("sessionid", self.session),
        ] {
            if !text.is_empty() {
                put(name, cut(text).into());
            }
        }
        if let Some(parameters) = self.parameters.filter(|parameters| !parameters.is_empty()) {
            put("parameters", Value::Object(parameters.clone()));
        }
        let mut bytes = serde_json::to_vec(&line).expect("text and numbers become JSON");
        bytes.push(b'\n');
        bytes
    }
}

/// Cuts a text to the longest length of a user name.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(USER_NAME_BYTES_MAX)]
}

/// The receiver of events.
#[derive(Debug, Default)]
pub struct Audit {
    /// The log; `None` if there is no place for one.
    log: Option<Arc<AuditLog>>,
    filter: ArcSwap<Filter>,
    /// The number of events that were lost.
    dropped: AtomicU64,
}

#[derive(Debug)]
struct AuditLog {
    /// The settings until an administrator makes others.
    defaults: AuditSettings,
    rotate_bytes: AtomicU64,
    rotate_interval_s: AtomicU32,
    prune_age_s: AtomicU32,
    waiting: RankedMutex<AuditWaiting, Waiting>,
    file: RankedMutex<AuditFile, LogFile>,
    /// The task that writes.
    task: OnceLock<(Executor, TaskId)>,
}

/// Lines that wait to be written.
#[derive(Debug, Default)]
struct Waiting {
    lines: VecDeque<Vec<u8>>,
    /// The number of lost events that no line reports yet.
    lost: u64,
    is_over: bool,
}

impl Audit {
    /// Creates an audit log that records nothing.
    #[must_use]
    pub fn off() -> Self {
        Self::default()
    }

    /// Opens the file, if events are recorded. Events wait until [`Audit::write_by`] starts the task.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(disk: Arc<dyn Disk>, config: AuditConfig) -> io::Result<Self> {
        let keys = AuditKeys(config.keyring);
        let mut file = LogFile::new(disk, config.dir, config.files_max, keys);
        if config.settings.enabled {
            file.open(unix_ms()).map_err(io::Error::other)?;
        }
        let log = AuditLog {
            rotate_bytes: config.settings.rotate_bytes.into(),
            rotate_interval_s: config.settings.rotate_interval_s.into(),
            prune_age_s: config.settings.prune_age_s.into(),
            waiting: RankedMutex::default(),
            file: RankedMutex::new(file),
            task: OnceLock::new(),
            defaults: config.settings,
        };
        Ok(Self {
            filter: ArcSwap::from_pointee(Filter::new(&log.defaults)),
            log: Some(Arc::new(log)),
            dropped: AtomicU64::new(0),
        })
    }

    /// Returns the settings until an administrator makes others; `None` if there is no place for a log.
    #[must_use]
    pub fn defaults(&self) -> Option<&AuditSettings> {
        self.log.as_ref().map(|log| &log.defaults)
    }

    /// Selects the recorded events from now on: by the settings of an administrator, or by those of the node.
    pub fn configure(&self, settings: Option<&AuditSettings>) {
        let Some(log) = &self.log else {
            return;
        };
        let settings = settings.unwrap_or(&log.defaults);
        let bytes = log
            .rotate_bytes
            .swap(settings.rotate_bytes, Ordering::Relaxed);
        let interval = &log.rotate_interval_s;
        let interval = interval.swap(settings.rotate_interval_s, Ordering::Relaxed);
        let age = log
            .prune_age_s
            .swap(settings.prune_age_s, Ordering::Relaxed);
        let filter = Filter::new(settings);
        let before = self.filter.load_full();
        let limits = (
            settings.rotate_bytes,
            settings.rotate_interval_s,
            settings.prune_age_s,
        );
        if (bytes, interval, age) == limits && filter == *before {
            return;
        }
        // The last event of a log that is turned off says so.
        let event = AuditEvent::new(EventKind::Configured, "");
        if before.is_on() {
            self.put(&event);
        }
        self.filter.store(Arc::new(filter));
        if !before.is_on() {
            self.put(&event);
        }
    }

    /// Starts the task that writes. It ends with the executor; [`Audit::finish`] then writes waiting events.
    ///
    /// # Errors
    /// [`ScheduleError`] after the executor's end.
    pub fn write_by(&self, pools: &TaskPools) -> Result<(), ScheduleError> {
        let Some(log) = &self.log else {
            return Ok(());
        };
        let spec = TaskSpec {
            description: "writes and syncs the audit log".into(),
            ..TaskSpec::new(&AUDIT_LOG, pools.owner())
        };
        let executor = pools.executor();
        let writes = log.clone();
        let task = move |_: &TaskContext<'_>| {
            if writes.write_some() {
                Next::Again
            } else {
                Next::Sleep
            }
        };
        let id = executor.schedule(spec, task)?;
        let _ = log.task.set((executor.clone(), id));
        // Events in the meantime woke no task.
        executor.wake(id);
        Ok(())
    }

    /// Adds an event.
    pub fn put(&self, event: &AuditEvent<'_>) {
        let Some(log) = self
            .log
            .as_ref()
            .filter(|_| self.filter.load().admits(event))
        else {
            return;
        };
        if log.take(event.line(unix_ms())).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns whether events are recorded.
    pub fn is_on(&self) -> bool {
        self.filter.load().is_on()
    }

    /// Returns the number of lost events since the start, because too many waited.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Writes waiting events. Later events are lost.
    pub fn finish(&self) {
        let Some(log) = &self.log else {
            return;
        };
        log.waiting.lock().is_over = true;
        while log.write_some() {}
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.finish();
    }
}

/// An event that is lost.
struct Lost;

impl AuditLog {
    fn take(&self, line: Vec<u8>) -> Result<(), Lost> {
        let is_first = {
            let mut waiting = self.waiting.lock();
            if waiting.is_over || waiting.lines.len() >= QUEUE_MAX {
                waiting.lost += 1;
                return Err(Lost);
            }
            waiting.lines.push_back(line);
            waiting.lines.len() == 1
        };
        if is_first && let Some((executor, id)) = self.task.get() {
            executor.wake(*id);
        }
        Ok(())
    }

    /// Writes the next lines. Returns whether more wait.
    fn write_some(&self) -> bool {
        // First, so that lines are in the order in which they were added.
        let mut file = self.file.lock();
        let (batch, count) = {
            let mut waiting = self.waiting.lock();
            let count = waiting.lines.len().min(BATCH_MAX);
            if count == 0 {
                return false;
            }
            let lost = std::mem::take(&mut waiting.lost);
            let mut batch = events::lost_line(lost, unix_ms());
            for line in waiting.lines.drain(..count) {
                batch.extend_from_slice(&line);
            }
            (batch, lost + count as u64)
        };
        let limits = RotationLimits {
            bytes_max: self.rotate_bytes.load(Ordering::Relaxed),
            interval_ms: u64::from(self.rotate_interval_s.load(Ordering::Relaxed)) * 1_000,
            prune_age_ms: u64::from(self.prune_age_s.load(Ordering::Relaxed)) * 1_000,
        };
        let result = file.append(&batch, limits, unix_ms());
        let mut waiting = self.waiting.lock();
        if let Err(error) = result {
            waiting.lost += count;
            tracing::error!("cannot write the audit log: {error}");
        }
        !waiting.lines.is_empty()
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0))
}

#[cfg(test)]
mod encrypted_tests;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use kedge_disk::{Fault, Operation, SimDisk, read_file};

    use super::file::FILE;
    use super::*;
    use crate::pools::ONE_THREAD_EACH;

    fn config(rotate_bytes: u64, files_max: u32) -> AuditConfig {
        AuditConfig {
            dir: PathBuf::from("/data"),
            files_max,
            settings: AuditSettings {
                enabled: true,
                rotate_interval_s: 86_400,
                rotate_bytes,
                prune_age_s: 0,
                disabled: BTreeSet::new(),
                disabled_users: BTreeSet::new(),
            },
            keyring: None,
        }
    }

    fn limits(bytes_max: u64) -> RotationLimits {
        RotationLimits {
            bytes_max,
            interval_ms: 86_400_000,
            prune_age_ms: 0,
        }
    }

    fn log_file(disk: &Arc<dyn Disk>, files_max: u32) -> LogFile {
        let keys = AuditKeys::default();
        LogFile::new(disk.clone(), PathBuf::from("/data"), files_max, keys)
    }

    fn disk() -> Arc<dyn Disk> {
        let disk = SimDisk::new(1);
        disk.create_dir_all(Path::new("/data")).unwrap();
        Arc::new(disk)
    }

    fn lines(disk: &dyn Disk, name: &str) -> Vec<Value> {
        let bytes = read_file(disk, &Path::new("/data").join(name)).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let parse = |line| serde_json::from_str(line).unwrap();
        text.lines().map(parse).collect()
    }

    #[test]
    fn audit_line_names_user_action_and_reason() {
        let long = "\u{e9}".repeat(USER_NAME_BYTES_MAX);
        let event = AuditEvent {
            peer: Some("[::ffff:10.0.0.1]:99".parse().unwrap()),
            local: Some("10.0.0.2:11210".parse().unwrap()),
            session: "abc",
            bucket: Some("b"),
            request: "SET",
            reason: "no \"right\"\n",
            ..AuditEvent::new(EventKind::Denied, &long)
        };
        let line = event.line(1_709_251_199_007);
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let expected = json!({
            "timestamp": "2024-02-29T23:59:59.007Z",
            "id": 20_484,
            "name": "command access failure",
            "description": "The user of a command lacks a privilege.",
            "effective_userid": { "domain": "local", "user": "\u{e9}".repeat(USER_NAME_BYTES_MAX / 2) },
            "real_userid": { "domain": "local", "user": "\u{e9}".repeat(USER_NAME_BYTES_MAX / 2) },
            "remote": { "ip": "10.0.0.1", "port": 99 },
            "local": { "ip": "10.0.0.2", "port": 11_210 },
            "sessionid": "abc",
            "bucket": "b",
            "request": "SET",
            "reason": "no \"right\"\n",
        });
        assert_eq!(serde_json::from_slice::<Value>(&line).unwrap(), expected);
        let line = AuditEvent::new(EventKind::LoggedIn, "^ada").line(0);
        let line: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(
            line["real_userid"],
            json!({ "domain": "external", "user": "ada" })
        );
        let line = AuditEvent::new(EventKind::ManagementDenied, "").line(0);
        let expected = json!({
            "timestamp": "1970-01-01T00:00:00.000Z",
            "id": 61_440,
            "name": "management access failure",
            "description": "The user of a request to management lacks a privilege.",
        });
        assert_eq!(serde_json::from_slice::<Value>(&line).unwrap(), expected);
    }

    #[test]
    fn audit_lines_survive_a_stop_and_a_torn_line_is_kept_apart() {
        let disk = disk();
        for round in 1..=3 {
            let audit = Audit::open(disk.clone(), config(1 << 20, 2)).unwrap();
            for number in 0..10 {
                let user = format!("user{number}");
                audit.put(&AuditEvent::new(EventKind::LoggedIn, &user));
            }
            audit.finish();
            audit.put(&AuditEvent::new(EventKind::LoggedIn, "late"));
            assert_eq!(audit.dropped(), 1);
            assert_eq!(lines(&*disk, FILE).len(), round * 10);
        }
        let path = Path::new("/data").join(FILE);
        let file = disk.open(&path).unwrap();
        let end = file.len().unwrap();
        file.write_at(b"\"torn\"", end).unwrap();
        let audit = Audit::open(disk.clone(), config(1 << 20, 2)).unwrap();
        audit.put(&AuditEvent::new(EventKind::LoggedIn, "ada"));
        audit.finish();
        let lines = lines(&*disk, FILE);
        assert_eq!(lines.len(), 32);
        assert_eq!(lines[31]["real_userid"]["user"], "ada");
    }

    #[test]
    fn audit_task_writes_lines_from_before_and_after_its_start() {
        let disk = disk();
        let audit = Audit::open(disk.clone(), config(1 << 20, 2)).unwrap();
        let put = |user| audit.put(&AuditEvent::new(EventKind::LoggedIn, user));
        let wait_for = |count| {
            while lines(&*disk, FILE).len() < count {
                std::thread::yield_now();
            }
        };
        put("before");
        let pools = TaskPools::start(ONE_THREAD_EACH).unwrap();
        audit.write_by(&pools).unwrap();
        wait_for(1);
        put("after");
        wait_for(2);
        let kinds = pools.kinds();
        assert!(kinds.iter().any(|info| info.kind.name() == "audit_log"));
        pools.executor().shutdown();
        put("at the end");
        audit.finish();
        assert_eq!(lines(&*disk, FILE).len(), 3);
    }

    #[test]
    fn dropped_audit_events_are_counted_in_the_next_line() {
        let sim = SimDisk::new(2);
        sim.create_dir_all(Path::new("/data")).unwrap();
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let audit = Audit::open(disk.clone(), config(64 << 20, 2)).unwrap();
        let put = || audit.put(&AuditEvent::new(EventKind::LoggedIn, "ada"));
        for _ in 0..QUEUE_MAX + 5 {
            put();
        }
        assert_eq!(audit.dropped(), 5);
        let log = audit.log.as_ref().unwrap();
        sim.fail_next(Operation::Write, Fault::NoSpace);
        assert!(log.write_some());
        while log.write_some() {}
        let lines = lines(&*disk, FILE);
        assert_eq!(lines[0]["name"], "audit events lost");
        assert_eq!(lines[0]["count"], BATCH_MAX as u64 + 5);
        assert_eq!(lines.len(), 1 + QUEUE_MAX - BATCH_MAX);
    }

    #[test]
    fn audit_rotation_removes_the_oldest_files() {
        let disk = disk();
        let mut log = log_file(&disk, 2);
        for number in 0..20 {
            let user = format!("{number:0100}");
            let line = AuditEvent::new(EventKind::LoggedIn, &user).line(0);
            log.append(&line, limits(1_000), 0).unwrap();
        }
        let mut names = disk.list(Path::new("/data")).unwrap();
        names.sort();
        assert_eq!(names, ["audit.log", "audit.log.1", "audit.log.2"]);
        let users = |name: &str| -> Vec<u64> {
            let number = |line: &Value| {
                let user = line["real_userid"]["user"].as_str().unwrap();
                user.parse().unwrap()
            };
            lines(&*disk, name).iter().map(number).collect()
        };
        let all = [users("audit.log.2"), users("audit.log.1"), users(FILE)].concat();
        let first = all[0];
        assert!(first > 0, "the oldest are gone");
        assert_eq!(all, (first..20).collect::<Vec<_>>());
        for name in names {
            let bytes = disk.len(&Path::new("/data").join(name)).unwrap();
            assert!(bytes <= 1_000, "{bytes}");
        }
    }

    #[test]
    fn audit_rotation_by_time_counts_from_the_first_line_also_after_a_start() {
        let disk = disk();
        let hour = RotationLimits {
            bytes_max: 1 << 20,
            interval_ms: 3_600_000,
            prune_age_ms: 0,
        };
        let count = |name: &str| lines(&*disk, name).len();
        let append = |log: &mut LogFile, at_ms: u64| {
            let line = AuditEvent::new(EventKind::LoggedIn, "ada").line(at_ms);
            log.append(&line, hour, at_ms).unwrap();
        };
        let mut log = log_file(&disk, 4);
        append(&mut log, 1_000);
        append(&mut log, 3_600_999);
        assert_eq!(count(FILE), 2);
        append(&mut log, 3_601_000);
        assert_eq!((count(FILE), count("audit.log.1")), (1, 2));
        // Another process goes on with the file.
        let mut log = log_file(&disk, 4);
        log.open(7_200_000).unwrap();
        append(&mut log, 7_200_999);
        assert_eq!(count(FILE), 2);
        append(&mut log, 7_201_000);
        assert_eq!((count(FILE), count("audit.log.1")), (1, 2));
        // A clock that goes backwards rotates nothing.
        append(&mut log, 0);
        assert_eq!(count(FILE), 2);
    }

    #[test]
    fn older_audit_files_are_removed_when_their_last_line_is_too_old() {
        let disk = disk();
        let limits = RotationLimits {
            bytes_max: 1 << 20,
            interval_ms: 1_000_000,
            prune_age_ms: 2_500_000,
        };
        let append = |log: &mut LogFile, at_ms: u64| {
            let line = AuditEvent::new(EventKind::LoggedIn, "ada").line(at_ms);
            log.append(&line, limits, at_ms).unwrap();
        };
        let names = || {
            let mut names = disk.list(Path::new("/data")).unwrap();
            names.sort();
            names
        };
        let mut log = log_file(&disk, 9);
        // Files begin at 1, 2 and 3 million.
        for at_ms in [1_000_000, 1_900_000, 2_000_000, 3_000_000] {
            append(&mut log, at_ms);
        }
        assert_eq!(names(), ["audit.log", "audit.log.1", "audit.log.2"]);
        // The oldest one may have lines up to 2 million.
        append(&mut log, 3_999_999);
        assert_eq!(names().len(), 3);
        let mut log = log_file(&disk, 9);
        log.open(4_000_000).unwrap();
        append(&mut log, 4_499_999);
        assert_eq!(names().len(), 4);
        append(&mut log, 4_559_999);
        assert_eq!(names(), ["audit.log", "audit.log.1", "audit.log.2"]);
        // All of whose lines it is known.
        append(&mut log, 50_000_000);
        assert_eq!(names(), ["audit.log", "audit.log.1"]);
        append(&mut log, 52_500_000);
        assert_eq!(names(), ["audit.log", "audit.log.1"]);
        append(&mut log, 52_560_000);
        assert_eq!(lines(&*disk, "audit.log.1").len(), 1);
    }

    #[test]
    fn audit_log_is_turned_on_and_off_while_the_server_runs() {
        let disk = disk();
        let mut config = config(1 << 20, 2);
        config.settings.enabled = false;
        let on = AuditSettings {
            enabled: true,
            disabled: [EventKind::DcpOpened.id()].into(),
            ..config.settings.clone()
        };
        let audit = Audit::open(disk.clone(), config).unwrap();
        let put = |kind| audit.put(&AuditEvent::new(kind, "ada"));
        put(EventKind::LoggedIn);
        audit.finish_lines();
        let path = Path::new("/data").join(FILE);
        assert!(!audit.is_on() && !disk.exists(&path).unwrap());
        audit.configure(Some(&on));
        audit.configure(Some(&on));
        put(EventKind::LoggedIn);
        put(EventKind::DcpOpened);
        assert!(audit.is_on());
        audit.configure(None);
        put(EventKind::LoggedIn);
        audit.finish_lines();
        let lines = lines(&*disk, FILE);
        let ids: Vec<u64> = lines
            .iter()
            .map(|line| line["id"].as_u64().unwrap())
            .collect();
        assert_eq!(ids, [4_096, 20_485, 4_096]);
    }

    /// A failed creation of the new file left the older ones renamed, and each attempt renamed them once more: soon all
    /// were gone.
    #[test]
    fn failed_audit_rotation_loses_no_file() {
        for op in [Operation::Create, Operation::Rename, Operation::Write] {
            let sim = SimDisk::new(3);
            sim.create_dir_all(Path::new("/data")).unwrap();
            let disk: Arc<dyn Disk> = Arc::new(sim.clone());
            let mut log = log_file(&disk, 4);
            let mut append = |line: &[u8]| log.append(line, limits(100), 0);
            let line =
                |number: u32| AuditEvent::new(EventKind::LoggedIn, &number.to_string()).line(0);
            for number in 0..3 {
                append(&line(number)).unwrap();
            }
            sim.fail_every(op, Fault::NoSpace);
            for _ in 0..10 {
                assert!(append(&line(9)).is_err(), "{op}");
            }
            sim.clear_faults();
            append(&line(3)).unwrap();
            let users: Vec<Value> = ["audit.log.3", "audit.log.2", "audit.log.1", FILE]
                .iter()
                .flat_map(|name| lines(&*disk, name))
                .map(|line| line["real_userid"]["user"].clone())
                .collect();
            assert_eq!(users, ["0", "1", "2", "3"], "{op}");
        }
    }

    /// The errors of the classes in `docs/reference/io-errors.md`: full, no descriptors, not allowed, device.
    const FAULTS: [Fault; 8] = [
        Fault::NoSpace,
        Fault::Os(122),
        Fault::Os(24),
        Fault::Os(23),
        Fault::Os(13),
        Fault::Os(1),
        Fault::Os(30),
        Fault::Io,
    ];

    fn sim() -> (SimDisk, Arc<dyn Disk>) {
        let sim = SimDisk::new(5);
        sim.create_dir_all(Path::new("/data")).unwrap();
        sim.sync_dir(Path::new("/data")).unwrap();
        (sim.clone(), Arc::new(sim))
    }

    fn put(audit: &Audit, user: &str) {
        audit.put(&AuditEvent::new(EventKind::LoggedIn, user));
        audit.finish_lines();
    }

    impl Audit {
        /// Writes the waiting events.
        fn finish_lines(&self) {
            while self.log.as_ref().unwrap().write_some() {}
        }
    }

    /// The users of the lines, and the number of lost events in place of a user.
    fn users(disk: &dyn Disk, names: &[&str]) -> Vec<String> {
        let there = names
            .iter()
            .filter(|name| disk.exists(&Path::new("/data").join(name)).unwrap());
        let lines = there.flat_map(|name| lines(disk, name));
        lines
            .map(|line| match line["real_userid"]["user"].as_str() {
                Some(user) => user.to_owned(),
                None => format!("{} {}", line["name"].as_str().unwrap(), line["count"]),
            })
            .collect()
    }

    /// A failed write or sync left bytes of lost lines behind a shorter line that was written over them.
    #[test]
    fn failed_audit_calls_lose_only_lines_that_the_next_line_counts() {
        // A write, and a rotation before it.
        for (limit, calls) in [
            (1 << 20, &[Operation::Write, Operation::Sync][..]),
            (
                150,
                &[
                    Operation::Create,
                    Operation::Rename,
                    Operation::SyncDir,
                    Operation::Write,
                    Operation::Sync,
                ],
            ),
        ] {
            for (op, fault) in calls.iter().flat_map(|op| FAULTS.map(|fault| (*op, fault))) {
                let what = format!("{op}, {fault:?}, limit {limit}");
                let (sim, disk) = sim();
                let audit = Audit::open(disk, config(limit, 4)).unwrap();
                put(&audit, "before");
                sim.fail_every(op, fault);
                put(&audit, &"lost".repeat(30));
                put(&audit, "lost");
                sim.clear_faults();
                put(&audit, "after");
                sim.crash(1);
                let names = ["audit.log.3", "audit.log.2", "audit.log.1", FILE];
                assert_eq!(
                    users(&sim, &names),
                    ["before", "audit events lost 2", "after"],
                    "{what}"
                );
            }
        }
    }

    #[test]
    fn start_continues_without_an_audit_log_on_a_full_disk_only() {
        const CALLS: [Operation; 6] = [
            Operation::Stat,
            Operation::Create,
            Operation::Open,
            Operation::SyncDir,
            Operation::Read,
            Operation::Write,
        ];
        for (op, fault) in CALLS.iter().flat_map(|op| FAULTS.map(|fault| (*op, fault))) {
            let what = format!("{op}, {fault:?}");
            let (sim, disk) = sim();
            let is_full = matches!(fault, Fault::NoSpace | Fault::Os(122));
            let has_file = op != Operation::Create;
            if has_file {
                // The end of the line is missing, and is written by the start.
                let file = disk.create(&Path::new("/data").join(FILE)).unwrap();
                file.write_at(br#"{"real_userid":{"user":"before"}}"#, 0)
                    .unwrap();
                file.sync_all().unwrap();
            }
            sim.fail_every(op, fault);
            let opened = Audit::open(disk, config(1 << 20, 2));
            let is_sync = op == Operation::SyncDir;
            let audit = match opened {
                Ok(audit) => {
                    assert!(is_full && !is_sync, "{what}");
                    audit
                }
                Err(error) => {
                    assert!(!is_full || is_sync, "{what}: {error}");
                    let place = if is_sync { "/data" } else { "/data/audit.log" };
                    assert!(error.to_string().contains(place), "{what}: {error}");
                    continue;
                }
            };
            put(&audit, "lost");
            sim.clear_faults();
            put(&audit, "after");
            sim.crash(1);
            let mut expected = vec!["audit events lost 1", "after"];
            if has_file {
                expected.insert(0, "before");
            }
            assert_eq!(users(&sim, &[FILE]), expected, "{what}");
        }
    }

    /// A file whose directory could not be synced was used without another sync, and a crash removed it.
    #[test]
    fn audit_lines_survive_a_crash_after_the_sync_of_the_directory_was_missed() {
        let (sim, disk) = sim();
        sim.fail_next(Operation::SyncDir, Fault::Io);
        Audit::open(disk.clone(), config(1 << 20, 2)).unwrap_err();
        let audit = Audit::open(disk, config(1 << 20, 2)).unwrap();
        put(&audit, "ada");
        for seed in 0..10 {
            let left = sim.fork();
            left.crash(seed);
            assert_eq!(users(&left, &[FILE]), ["ada"], "{seed}");
        }
    }

    #[test]
    fn audit_on_a_full_disk_drops_lines_until_there_is_space() {
        let sim = SimDisk::new(4);
        sim.create_dir_all(Path::new("/data")).unwrap();
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        sim.fail_every(Operation::Create, Fault::NoSpace);
        let audit = Audit::open(disk.clone(), config(64 << 20, 2)).unwrap();
        let log = audit.log.as_ref().unwrap();
        audit.put(&AuditEvent::new(EventKind::LoggedIn, "ada"));
        while log.write_some() {}
        sim.clear_faults();
        audit.put(&AuditEvent::new(EventKind::LoggedIn, "bob"));
        while log.write_some() {}
        let lines = lines(&*disk, FILE);
        assert_eq!((&lines[0]["count"], lines.len()), (&Value::from(1), 2));
    }
}
