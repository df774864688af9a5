//! The table of settings: the one place that names them, but for those of a bucket, which have a table of their own.
//!
//! From it come the struct [`Settings`], the flags of `kedge serve`, the environment variables, the keys of a
//! configuration file, the output of `kedge config`, and `docs/config.md`.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use kedge_bucket::{BucketChange, BucketConfig, BucketSetting};
use kedge_executor::ThreadCount;
use kedge_frontend::FrontendLimits;
use kedge_types::limits::VALUE_BYTES_MAX;
use kedge_types::setting::{Bytes, SettingValue};

use super::value::{Hosts, LogLevel, MaybePort, PoolThreads, Recover};
use crate::target::{KV_PORT, MEMCACHED_PORT, MGMT_PORT};

/// Checks the text of a value and gives the form in which it is shown.
type Check = dyn Fn(&str) -> Result<String, String> + Send + Sync;

/// A row of the table.
pub(crate) struct Setting {
    /// Name in a configuration file; the flag has dashes instead of underscores, the environment
    /// variable is in capitals after `KEDGE_`.
    pub(crate) name: &'static str,
    /// Heading under which it stands.
    pub(crate) group: &'static str,
    /// Form of its values.
    pub(crate) kind: String,
    /// Effect of the setting.
    pub(crate) doc: String,
    /// Text in place of the default in documentation when it depends on the machine.
    pub(crate) default_note: Option<&'static str>,
    /// Its value must not be shown.
    pub(crate) secret: bool,
    /// Checks a value and gives it in the form in which it is shown.
    pub(crate) check: Box<Check>,
    /// The default, as it is shown.
    pub(crate) default: String,
}

/// The settings of a bucket that `kedge serve` has in this group.
fn bucket_settings(group: &str) -> impl Iterator<Item = Setting> {
    let rows = BucketConfig::table().filter(move |row| row.group == Some(group));
    rows.map(bucket_setting)
}

fn bucket_setting(row: &'static BucketSetting) -> Setting {
    let doc = row.doc.trim();
    let (first, rest) = doc.split_at(1);
    Setting {
        name: row.name,
        group: row.group.unwrap_or_default(),
        kind: (row.kind)(),
        doc: format!("Of `bucket`: {}{rest}", first.to_lowercase()),
        default_note: row.default_note,
        secret: false,
        check: Box::new(|text| {
            let mut change = BucketChange::default();
            (row.read)(text, &mut change)?;
            Ok((row.show)(&change.apply(&BucketConfig::default())))
        }),
        // The bucket of a first start has more than others.
        default: match row.name {
            "bucket_quota" => Bytes(half_of_memory()).show(),
            "flush_enabled" => true.show(),
            _ => (row.show)(&BucketConfig::default()),
        },
    }
}

const fn first(notes: &[&'static str]) -> Option<&'static str> {
    match notes {
        [note, ..] => Some(note),
        [] => None,
    }
}

macro_rules! settings {
    ($(
        [$group:literal]
        $($name:ident: $type:ty = $default:expr, $doc:literal $(, default_note = $note:literal)? $(, secret = $secret:literal)?;)*
    )*) => {
        /// All settings of a server.
        #[derive(Clone, Debug)]
        pub(crate) struct Settings {
            $($(#[doc = $doc] pub(crate) $name: $type,)*)*
            /// The settings of `bucket`.
            pub(crate) bucket_settings: BucketChange,
        }

        /// All rows, in the order of the documentation.
        pub(crate) static TABLE: LazyLock<Vec<Setting>> = LazyLock::new(|| {
            let mut rows = Vec::new();
            $(
                $(rows.push(Setting {
                    name: stringify!($name),
                    group: $group,
                    kind: <$type as SettingValue>::KIND.to_owned(),
                    doc: $doc.to_owned(),
                    default_note: first(&[$($note)?]),
                    secret: false $(|| $secret)?,
                    check: Box::new(|text| <$type as SettingValue>::read(text).map(|value| value.show())),
                    default: { let value: $type = $default; value.show() },
                });)*
                rows.extend(bucket_settings($group));
            )*
            rows
        });

        impl Settings {
            /// Makes the settings from the text of each; `text` is asked for every name of the table.
            ///
            /// # Errors
            /// The name of the setting and the form that was expected.
            pub(super) fn build<'a>(
                text: impl Fn(&str) -> &'a str,
            ) -> Result<Self, (&'static str, String)> {
                let mut bucket_settings = BucketChange::default();
                for row in BucketConfig::table().filter(|row| row.group.is_some()) {
                    (row.read)(text(row.name), &mut bucket_settings).map_err(|why| (row.name, why))?;
                }
                Ok(Self {
                    $($($name: <$type as SettingValue>::read(text(stringify!($name)))
                        .map_err(|why| (stringify!($name), why))?,)*)*
                    bucket_settings,
                })
            }
        }
    };
}

/// The address that only this machine reaches.
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

settings! {
    ["Files and addresses"]
    data_dir: PathBuf = PathBuf::from("./data"),
        "Directory of everything the server keeps. Made if it is not there. One process at a time uses it.";
    listen: IpAddr = LOOPBACK,
        "Address that the key-value and management ports are bound to. Anything but loopback is refused while the \
         administrator's password is the default one.";
    kv_port: u16 = KV_PORT,
        "Port of the key-value protocol, for Couchbase's SDKs. 0 is any free port.";
    mgmt_port: u16 = MGMT_PORT,
        "Port of management over HTTP. 0 is any free port.";
    http_allowed_hosts: Hosts = Hosts::default(),
        "Names that requests to management may use for this server in the header Host, separated by commas: one that begins with a dot stands for all names that end so, `*` for any. Addresses, localhost, the machine's own name and the nodes' names of the cluster file are always allowed; others are answered 403, as are pages of other origins. So a page that a browser has loaded from elsewhere cannot use this server.", default_note = "none";
    memcached_port: MaybePort = MaybePort::At(MEMCACHED_PORT),
        "Port for plain memcached clients, binary and text. 0 is any free port. `off`: such clients are not served.";
    memcached_enabled: bool = true,
        "Whether plain memcached clients are served at all; `false` is `memcached_port = \"off\"`.";
    memcached_listen: IpAddr = LOOPBACK,
        "Address that the memcached port is bound to. Anything but loopback is refused unless clients have to log in (`memcached_login`, `memcached_auth_file`) or `memcached_open` is set.";
    memcached_login: bool = false,
        "Whether clients of the memcached port have to log in first: with SASL in the binary protocol, in text with a first command `set KEY 0 0 LENGTH` whose value is `USER PASSWORD`. Users are the server's, with their roles, and those of `memcached_auth_file`.";
    memcached_auth_file: String = String::new(),
        "File with a line `USER:PASSWORD` for each user of the memcached port, as memcached's `-Y` takes it. They may read, write and look at statistics of its bucket. Clients have to log in then. It is read at the start.", default_note = "none";
    memcached_open: bool = false,
        "Whether the memcached port may be bound to an address that others reach although its clients need not log in: whoever reaches it reads and writes all documents of its bucket.";
    memcached_flush_all: bool = false,
        "Whether clients of the memcached port may empty its bucket with `flush_all`, where the bucket allows it (`flush_enabled`).";
    memcached_item_max: Bytes = Bytes(VALUE_BYTES_MAX as u64),
        "Largest value, as it is sent, that clients of the memcached port may store, at most 20MiB. memcached's own limit is 1MiB.";
    memcached_bucket: String = String::new(),
        "Bucket that plain memcached clients reach. Empty: that of `bucket`.", default_note = "that of `bucket`";

    ["Cluster"]
    cluster: String = String::new(),
        "The cluster file, which names all nodes (docs/guides/cluster.md). Its ports are this node's unless others are given, and plain memcached clients are not served unless `memcached_port` or `memcached_enabled` is given. Empty: the server runs alone.", default_note = "none";
    node_id: String = String::new(),
        "Which node of the cluster file this is.", default_note = "none";
    stop_with_parent: bool = false,
        "Whether the server stops when the process that started it ends.";

    ["First start"]
    user: String = "Administrator".to_owned(),
        "Name of the administrator, made if it is not there.";
    password: String = DEFAULT_PASSWORD.to_owned(),
        "The administrator's password. Given on a later start, it replaces the one that is kept.", secret = true;
    password_length_min: u16 = 6,
        "Fewest characters of a password that is set from now on, also of `password`.";
    bucket: String = "default".to_owned(),
        "Bucket that is made if it is not there. Empty: none. The settings that say \"Of `bucket`\" are those of this bucket; given on a later start, they change it.";
    vbuckets: u16 = 1024,
        "vBuckets of a bucket that is made, 1 to 65535. It cannot be changed later.";

    ["Durability"]
    recover: Recover = Recover::Strict,
        "What to do about damage in the middle of a log. A torn end, as a loss of power leaves it, is always cut off.";

    ["Storage"]

    ["Memory"]

    ["Compaction"]

    ["Threads and log"]
    threads: u16 = 0,
        "Front-end threads. 0: one for each core.", default_note = "one for each core";
    front_end_reads: bool = true,
        "Whether front-end threads read documents that are on disk only themselves, while they go on with other commands: the system is asked for many at once (io_uring of Linux), and no other thread has to be woken. Where the system has no such reads, or forbids them, the reader threads read as with `false`.";
    front_end_spin_us: u16 = 200,
        "How long, in microseconds, a front-end thread that reads a document itself looks whether the disk has answered, before it sleeps until then. It looks as long as the answers come within half of that on the mean, and lets other threads of its core run meanwhile: a fast disk answers sooner than a thread that sleeps is woken. 0: it sleeps at once, which leaves the processors more idle, and serves more where a container's quota of processor time is used up, as the looks count.";
    num_reader_threads: PoolThreads = PoolThreads(ThreadCount::Balanced),
        "Threads for reads of the disk that clients wait for; none is needed while all documents are in memory. `balanced`: one for each core, 4 to 16; `disk_io_optimized`: two for each core, 4 to 128. This and the three settings below can be changed while the server runs, until its next start: `kedge config set num_reader_threads=8`.";
    num_writer_threads: PoolThreads = PoolThreads(ThreadCount::Balanced),
        "Threads that write to disk what clients wait for: the logs of all buckets. `balanced`: 4; `disk_io_optimized`: two for each core, 4 to 128.";
    num_auxio_threads: PoolThreads = PoolThreads(ThreadCount::Balanced),
        "Threads for long work on files: log segments made ready, logs replayed at the start. `balanced`: two for each core, 2 to 128.";
    num_nonio_threads: PoolThreads = PoolThreads(ThreadCount::Balanced),
        "Threads for work that needs the processor only: time-outs, expiry, passwords. `balanced`: three for ten cores, 2 to 8.";
    log_level: LogLevel = LogLevel::Info,
        "Least important messages that are logged to standard error. The variable `RUST_LOG` overrides it with more \
         detail.";

    ["Limits"]
    connections_max: u32 = FrontendLimits::default().connections_max,
        "Most client connections at a time. It is lowered to what the limit of open files allows. One more is closed \
         at once, unless one on the key-value port has not logged in yet: the oldest of these goes instead, of the \
         address with most of them.";
    memcached_connections_max: u32 = FrontendLimits::default().memcached_connections_max,
        "How many of these may be on the memcached port, whose clients need not log in; one more is closed at once. 0: half of `connections_max`.", default_note = "half of `connections_max`";
    unauthenticated_timeout: Duration = FrontendLimits::default().unauthenticated,
        "Time that a client has to log in, where it has to.";
    idle_timeout: Duration = FrontendLimits::default().idle,
        "Time without a request after which a connection is closed. 0s: never.";
    slow_sender_timeout: Duration = FrontendLimits::default().slow_sender,
        "Time that a request may stay incomplete.";
    send_timeout: Duration = FrontendLimits::default().send_stall,
        "Time that replies may wait for a client that does not read them.";
    dcp_idle_timeout: Duration = FrontendLimits::default().dcp_idle,
        "Time that a consumer of DCP may leave a NOOP without an answer.";
    dcp_stuck_timeout: Duration = FrontendLimits::default().dcp_stuck,
        "Time that the buffer of a consumer of DCP may be full without an acknowledgement.";
    audit_log: bool = false,
        "Keep logins, and what users are refused, as lines of JSON in audit.log of the data directory.";
    audit_log_bytes_max: Bytes = Bytes(20 << 20),
        "Size at which the audit log goes on in a new file; the ones before are audit.log.1 and so on.";
    audit_log_files: u32 = 10,
        "Files of the audit log that are kept beside the one that is written to.";
    queued_bytes_max: Bytes = Bytes(FrontendLimits::default().queued_bytes_max as u64),
        "Bytes of replies queued for one connection above which its requests are not read.";
    request_memory_max: Bytes = Bytes(FrontendLimits::default().request_memory_max as u64),
        "Memory that requests of all connections may take together while they are received and executed, at least 128MiB; \
         clients that did not log in have a quarter of it. A connection whose request does not fit is not read until it \
         does.";
    shutdown_timeout: Duration = Duration::from_secs(3),
        "Time that requests in flight have to end after SIGTERM or SIGINT; then what is queued is synced.";
}

/// The password that everybody knows.
pub(crate) const DEFAULT_PASSWORD: &str = "password";

/// Half of the memory that this machine, or the control group that we run in, has; in whole MiB.
fn half_of_memory() -> u64 {
    const MIB: u64 = 1 << 20;
    let info = rustix::system::sysinfo();
    let machine = info.totalram.saturating_mul(u64::from(info.mem_unit));
    // cgroup v2; "max" when there is no limit, and no such file outside of a group.
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max");
    let group = group
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(u64::MAX);
    (machine.min(group) / 2 / MIB).max(1) * MIB
}
